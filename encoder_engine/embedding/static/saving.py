"""Writes a static model as model2vec does, and beside it the modules of sentence-transformers.

model2vec and sentence-transformers both load the directory. ``mapping`` and ``weights`` are kept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.saving.card import write_card
from encoder_engine.embedding.saving.modules import write_json, write_modules_json
from encoder_engine.embedding.static.reading import CONFIG, MODEL_TYPE, MODULE, is_model2vec
from encoder_engine.errors import ConfigError
from encoder_engine.families.checkpoints.arrays import cast, widen
from encoder_engine.families.checkpoints.writing import write_tensors
from encoder_engine.files import writing
from encoder_engine.inference.static_table import TABLE_DTYPES
from encoder_engine.opening.modules import MODULES
from encoder_engine.opening.recipe import CONFIG as SETTINGS
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.tokenizer import TruncationSpec

if TYPE_CHECKING:
    import os

    from encoder_engine.embedding.static.model import StaticModel
    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["convert_rows", "save_static_model"]


def save_static_model(
    model: StaticModel, directory: str | os.PathLike[str], *, dtype: str = "auto"
) -> None:
    """Write a static model's directory; see :meth:`StaticEmbedder.save_pretrained`."""
    folder, table, settings = Path(directory), model.table, model.settings
    rows_VD = convert_rows(table.rows_VD, table.dtype if dtype == "auto" else dtype)
    is_library = settings.rules == "sentence-transformers"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A directory without this file is not a model, so that new parts are never loaded with old
        # ones.
        (folder / MODULES).unlink(missing_ok=True)
        if is_library and is_model2vec(folder / CONFIG):
            # A former model's file, which would state the other rules.
            (folder / CONFIG).unlink()
    tensors = {"embedding.weight" if is_library else "embeddings": rows_VD}
    if table.mapping_N is not None:
        tensors["mapping"] = table.mapping_N.astype(np.int64)
    if table.weights_N is not None:
        tensors["weights"] = table.weights_N
    if is_library and len(tensors) > 1:
        # sentence-transformers folds a mapping only where the table has model2vec's name.
        tensors["embeddings"] = tensors.pop("embedding.weight")
    write_tensors(folder / "model.safetensors", tensors)
    tokenizer = _with_limit(model.tokenizer, settings.max_length) if is_library else model.tokenizer
    tokenizer.save(folder)
    if not is_library:
        write_json(folder / CONFIG, _config(model, dtype if dtype != "auto" else table.dtype))
    stated: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": settings.prompts,
        "default_prompt_name": settings.default_prompt_name,
        "similarity_fn_name": settings.similarity or "cosine",
    }
    if settings.truncate_dim is not None:
        stated["truncate_dim"] = settings.truncate_dim
    write_json(folder / SETTINGS, stated)
    kinds = {".": MODULE} | ({"1_Normalize": "Normalize"} if settings.normalized else {})
    write_card(
        folder,
        loader="StaticEmbedder",
        subject=f"Texts to vectors of {table.width} features.",
        base_model=settings.base_model,
        facts={
            "vectors": f"the mean of {table.num_ids:,} tokens' rows",
            "similarity": settings.similarity or "cosine",
        },
    )
    # Last, because its presence marks a complete model.
    write_modules_json(folder / MODULES, kinds)


def _with_limit(tokenizer: Tokenizer, max_length: int | None) -> Tokenizer:
    """Return a tokenizer whose file states this limit, where sentence-transformers reads it."""
    stated = tokenizer.spec.truncation
    if max_length == (None if stated is None else stated.max_length):
        return tokenizer
    truncation = None
    if max_length is not None:
        side = tokenizer.spec.truncation_side
        truncation = TruncationSpec(
            max_length=max_length, strategy="longest_first", stride=0, direction=side
        )
    return Tokenizer(replace(tokenizer.spec, truncation=truncation))


def convert_rows(rows_VD: Array, dtype: str) -> Array:
    """Return a table in another dtype; int8 as model2vec rounds it.

    Raises :class:`ConfigError` for an unknown dtype.
    """
    if dtype not in TABLE_DTYPES:
        known = ", ".join(TABLE_DTYPES)
        raise ConfigError(f"dtype must be 'auto' or one of {known}, got {dtype!r}")
    if dtype == "int8":
        if rows_VD.dtype == np.int8:
            return rows_VD
        wide = widen(rows_VD).astype(np.float32)
        scale = max(float(np.abs(wide).max()) / 127.0, float(np.finfo(np.float32).tiny))
        return np.asarray(np.clip(np.rint(wide / scale), -127, 127).astype(np.int8))
    wide = rows_VD.astype(np.float32) if rows_VD.dtype == np.int8 else rows_VD
    if dtype == "float16":
        return np.asarray(widen(wide).astype(np.float16))
    return cast(wide, dtype)


def _config(model: StaticModel, dtype: str) -> dict[str, Any]:
    settings, table = model.settings, model.table
    config: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": ["StaticModel"],
        "tokenizer_name": settings.base_model or "",
        "hidden_dim": table.width,
        "normalize": settings.normalized,
        "max_length": settings.max_length,
        "embedding_dtype": dtype,
    }
    if table.mapping_N is not None:
        config["vocabulary_quantization"] = len(table.rows_VD)
    return config
