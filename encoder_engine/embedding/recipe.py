"""How a model directory turns text into vectors: what stands around the encoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from encoder_engine.embedding.json_files import (
    JsonObject,
    optional_count,
    read_json,
    read_object,
    refuse_unknown_keys,
)
from encoder_engine.embedding.modules import (
    check_normalize_config,
    check_pooling_modes,
    read_modules,
    read_pooling_config,
    read_transformer_config,
)
from encoder_engine.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.ops.pooling import PoolingMode

_MODEL_KEYS = (
    "__version__",
    "default_prompt_name",
    "model_type",
    "prompts",
    "similarity_fn_name",
    "truncate_dim",
)
# transformers writes 1e30 where a tokenizer has no limit.
_NO_LIMIT = 10**9


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a directory says beside its weights.

    ``pooling``: modes, concatenated in this order; ``default_pooling``: nobody named them;
    ``pooling_width``: the encoder width that the
    pooling was made for, if stated; ``include_prompt``: whether a prompt's tokens are pooled;
    ``normalized``: whether vectors have Euclidean length 1; ``max_seq_length``: tokens per text,
    special tokens included; ``lowercase``: whether text is lower-cased before the tokenizer;
    ``truncate_dim``: leading features to keep, if not all.
    """

    encoder_directory: Path
    pooling: tuple[PoolingMode, ...]
    default_pooling: bool = False
    pooling_width: int | None = None
    include_prompt: bool = True
    normalized: bool = False
    max_seq_length: int | None = None
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=lambda: {"query": "", "document": ""})
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None


def read_recipe(directory: Path, pooling: str | Sequence[str] | None = None) -> Recipe:
    """Read a sentence-transformers directory, or a plain transformers one without ``modules.json``.

    A plain one gets mean pooling, by default; where given, ``pooling`` names the modes instead of
    that and of what a directory says. Raises
    :class:`ConfigError`, and :class:`UnsupportedFeatureError` for what is not computed here.
    """
    override = None if pooling is None else check_pooling_modes(pooling)
    if not (directory / "modules.json").is_file():
        return Recipe(
            encoder_directory=directory,
            pooling=override or ("mean",),
            default_pooling=override is None,
            max_seq_length=_tokenizer_limit(directory),
        )
    modules = read_modules(directory)
    transformer = read_transformer_config(modules[0].folder)
    pooled = read_pooling_config(modules[1].folder)
    for module in modules[2:]:
        check_normalize_config(module.folder)
    settings = _read_model_settings(directory / "config_sentence_transformers.json")
    prompts, default_prompt_name = _read_prompts(directory, settings)
    return Recipe(
        encoder_directory=modules[0].folder,
        pooling=override or pooled.modes,
        pooling_width=pooled.width,
        include_prompt=pooled.include_prompt,
        normalized=len(modules) == 3,
        max_seq_length=transformer.max_seq_length or _tokenizer_limit(modules[0].folder),
        lowercase=transformer.lowercase,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        truncate_dim=optional_count(directory, settings, "truncate_dim"),
        similarity=settings.get("similarity_fn_name"),
    )


def _tokenizer_limit(directory: Path) -> int | None:
    path = directory / "tokenizer_config.json"
    if not path.is_file():
        return None
    limit = read_object(path).get("model_max_length")
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or limit >= _NO_LIMIT:
        return None
    if limit < 1:
        raise ConfigError(f"{path}: model_max_length must be positive, got {limit}")
    return int(limit)


def _read_model_settings(path: Path) -> JsonObject:
    if not path.is_file():
        return {}
    settings = read_object(path)
    refuse_unknown_keys(path, settings, _MODEL_KEYS)
    model_type = settings.get("model_type", "SentenceTransformer")
    if model_type != "SentenceTransformer":
        raise UnsupportedFeatureError(
            f"{path} describes a {model_type}; the engine embeds a SentenceTransformer"
        )
    return settings


def _read_prompts(directory: Path, settings: JsonObject) -> tuple[dict[str, str], str | None]:
    path = directory / "config_sentence_transformers.json"
    stated = settings.get("prompts") or {}
    if not isinstance(stated, dict):
        raise ConfigError(f"{path}: prompts must be an object of texts, got {stated!r}")
    prompts = {"query": "", "document": ""}
    for name, prompt in stated.items():
        if prompt is not None and not isinstance(prompt, str):
            raise ConfigError(f"{path}: prompt {name!r} must be a text, got {prompt!r}")
        prompts[name] = prompt or ""
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ConfigError(
            f"{path}: default_prompt_name is {default!r}, the prompts are {', '.join(prompts)}"
        )
    return prompts, default


def encoder_directory(directory: Path) -> Path:
    """Find the folder of a model's encoder and tokenizer, whatever modules follow them."""
    path = directory / "modules.json"
    entries = read_json(path) if path.is_file() else None
    if isinstance(entries, list) and entries and isinstance(entries[0], dict):
        return directory / str(entries[0].get("path", ""))
    return directory
