"""Reads static models: model2vec's directories and sentence-transformers' StaticEmbedding.

A directory of model2vec has config.json, tokenizer.json and model.safetensors with ``embeddings``,
and with a quantized vocabulary ``mapping`` and ``weights``. One of sentence-transformers has
modules.json and ``embedding.weight``. model2vec writes modules.json too: ``model_type`` in
config.json tells them apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.static.model import (
    DEFAULT_MAX_LENGTH,
    RULES,
    StaticModel,
    StaticSettings,
    unknown_id,
)
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    TensorNamesError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import mapped_files, open_tensors
from encoder_engine.files import verify_checksums
from encoder_engine.inference.memory import MappedFiles
from encoder_engine.inference.static_table import StaticTable
from encoder_engine.json_values import JsonValue
from encoder_engine.opening.checksums import verify_modules, verify_settings
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import MODULES, STATIC_ORDER, read_modules
from encoder_engine.opening.recipe import read_settings
from encoder_engine.opening.stack import check_normalize
from encoder_engine.text import Tokenizer
from encoder_engine.text.directory import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.embedding.static.model import Rules
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.opening.modules import Module

__all__ = ["is_model2vec", "is_static", "read_static_model"]

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
MODEL_TYPE = "model2vec"
MODULE = "StaticEmbedding"
# model2vec's name of the table, and sentence-transformers'.
_TABLES = ("embeddings", "embedding.weight")
# "no limit" as model2vec's configurations of before 0.5 write it.
_NO_LIMIT = 10**6


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where a static model's files are, and which optional ones exist.

    directory: the model's directory.
    folder: the folder of the table.
    has_config: there is a config.json of model2vec.
    normalizes: a Normalize module follows the table.
    """

    directory: Path
    folder: Path
    has_config: bool
    normalizes: bool


def is_static(directory: Path) -> bool:
    """Return whether a local directory holds a static model."""
    if (directory / MODULES).is_file():
        entries = read_value(directory / MODULES).items()
        return bool(entries) and entries[0].kind().rpartition(".")[2] == MODULE
    return is_model2vec(directory / CONFIG)


def read_static_model(
    directory: Path,
    *,
    rules: Rules | None = None,
    max_length: int | None = None,
    unlimited: bool = False,
    route: Sequence[Module] = (),
) -> StaticModel:
    """Read a static model; see :meth:`StaticEmbedder.from_pretrained`.

    max_length: the most tokens of a text; None: the directory's limit, or none if ``unlimited``.
    route: the modules of the model, if it is one route of a Router.
    """
    verify_settings(directory)
    layout = _layout(directory, route) if route else _find_layout(directory)
    if rules is None:
        rules = "model2vec" if layout.has_config else "sentence-transformers"
    elif rules not in RULES:
        raise ConfigError(f"rules must be one of {', '.join(RULES)}, got {rules!r}")
    path = layout.folder / TOKENIZER
    if not path.is_file():
        raise CheckpointFileError(f"{layout.folder} has no {TOKENIZER}; fetch it again")
    # This file alone: neither library reads the files beside it, or uses its template.
    tokenizer = Tokenizer(load(path))
    settings = _read_settings(layout, rules, tokenizer)
    if max_length is not None or unlimited:
        settings = replace(settings, max_length=max_length)
    left_out = unknown_id(tokenizer) if rules == "model2vec" else -1
    return StaticModel(
        table=_read_table(layout.folder, left_out), tokenizer=tokenizer, settings=settings
    )


def _find_layout(directory: Path) -> _Layout:
    has_config = is_model2vec(directory / CONFIG)
    if not (directory / MODULES).is_file():
        if not has_config:
            raise UnsupportedFeatureError(
                f"{directory} holds no static model: expected {MODULES} with a {MODULE} module, or "
                f"a {CONFIG} whose model_type is {MODEL_TYPE!r}; Embedder.from_pretrained loads "
                "models with an encoder"
            )
        return _Layout(directory=directory, folder=directory, has_config=True, normalizes=False)
    modules = read_modules(directory, STATIC_ORDER)
    verify_modules(directory, [module.folder for module in modules])
    return _layout(directory, modules, has_config=has_config)


def _layout(directory: Path, modules: Sequence[Module], *, has_config: bool = False) -> _Layout:
    for module in modules[1:]:
        check_normalize(module.folder)
    return _Layout(
        directory=directory,
        folder=modules[0].folder,
        has_config=has_config,
        normalizes=len(modules) > 1,
    )


def is_model2vec(config: Path) -> bool:
    """Return whether a config.json has model2vec's ``model_type``, which decides the rules."""
    if not config.is_file():
        return False
    return bool(read_value(config).object().get("model_type") == MODEL_TYPE)


def _read_settings(layout: _Layout, rules: Rules, tokenizer: Tokenizer) -> StaticSettings:
    """Read a static model's settings from the files of model2vec and of sentence-transformers.

    Whether vectors are normalized, and the limit of tokens, are as ``rules`` say.
    """
    stated = read_settings(layout.directory, "SentenceTransformer")
    normalized, base = layout.normalizes, None
    limit: int | None = DEFAULT_MAX_LENGTH
    if layout.has_config:
        config = read_value(layout.directory / CONFIG)
        if config.get("normalize").present:
            normalized = config.get("normalize").boolean()
        if config.get("max_length").present:
            limit = config.get("max_length").optional(JsonValue.positive)
        base = config.get("tokenizer_name").optional(JsonValue.string)
    if rules == "sentence-transformers":
        # The truncation that the file states stays on; an input module has no limit of its own.
        normalized = layout.normalizes
        limit = None
        if tokenizer.spec.truncation is not None:
            limit = tokenizer.spec.truncation.max_length
    if limit is not None and limit >= _NO_LIMIT:
        limit = None
    return StaticSettings(
        rules=rules,
        normalized=normalized,
        max_length=limit,
        prompts=stated.prompts,
        default_prompt_name=stated.default_prompt_name,
        truncate_dim=stated.truncate_dim,
        similarity=stated.similarity,
        base_model=base or None,
    )


def _read_table(folder: Path, left_out: int) -> StaticTable:
    """Map the table's file; read ``mapping`` and ``weights``, a number per token each, if present.

    left_out: the id of a token that pooling leaves out; -1: none.
    """
    verify_checksums(folder)
    opened = MappedFiles(mapped_files(folder))
    with open_tensors(folder) as tensors:
        found = [name for name in _TABLES if name in tensors]
        unexpected = sorted(tensors.keys() - {*_TABLES, "mapping", "weights"})
        if len(found) != 1 or unexpected:
            raise TensorNamesError(
                f"{folder} holds the tensors {', '.join(sorted(tensors))}; expected "
                f"exactly one of {' and '.join(_TABLES)}, and optionally mapping and weights",
                missing=[] if found else [_TABLES[0]],
                unexpected=unexpected,
            )
        rows = tensors[found[0]].map()
        if rows.dtype == np.float64:
            rows = rows.astype(np.float32)
        mapping = tensors["mapping"].read() if "mapping" in tensors else None
        weights = tensors["weights"].read() if "weights" in tensors else None
    if mapping is not None and mapping.dtype.kind not in "iu":
        raise CheckpointFileError(f"{folder}: mapping is {mapping.dtype}, expected integers")
    return StaticTable(
        rows_VD=rows,
        mapping_N=None if mapping is None else _as_int32(mapping, folder),
        weights_N=None if weights is None else widen(weights).astype(np.float32),
        left_out=left_out,
        mapped_files=opened,
    )


def _as_int32(mapping: Array, folder: Path) -> npt.NDArray[np.int32]:
    if mapping.size and int(mapping.min()) < 0:
        raise CheckpointFileError(f"{folder}: mapping holds negative rows; fetch it again")
    rows: npt.NDArray[np.int32] = np.minimum(mapping, np.iinfo(np.int32).max).astype(np.int32)
    return rows
