"""Writes an embedder as a directory of sentence-transformers, with its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.directory.modules import MODULES
from encoder_engine.embedding.directory.recipe import CONFIG
from encoder_engine.embedding.saving.card import write_card
from encoder_engine.errors import OutputError, UnsupportedFeatureError
from encoder_engine.files import write_atomically, writing

if TYPE_CHECKING:
    import os

    from encoder_engine.embedding.directory.recipe import PoolingRecipe
    from encoder_engine.embedding.parts import EmbedderParts
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["save_embedder", "write_sentence_settings"]


def save_embedder(parts: EmbedderParts, directory: str | os.PathLike[str]) -> None:
    """Write a directory; see :meth:`Embedder.save_pretrained`."""
    folder, recipe = Path(directory), parts.recipe
    if recipe.layers is not None:
        raise UnsupportedFeatureError(
            "layers= has no module in sentence-transformers; save an embedder of the last layer"
        )
    own = Path(parts.loading.path) if parts.loading else recipe.encoder_directory
    if folder.exists() and own.exists() and folder.resolve() == own.resolve():
        raise OutputError(
            f"{folder} holds the files that this embedder reads; name another directory"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A directory without this file is no model: the new parts never meet the old ones.
        (folder / MODULES).unlink(missing_ok=True)
    parts.engine.save_encoder(folder)
    parts.tokenizer.save(folder)
    write_sentence_settings(
        folder,
        recipe,
        parts.engine.spec,
        max_seq_length=parts.max_seq_length,
        dimension=parts.dimension,
        base_model=parts.loading.path if parts.loading else None,
    )


def write_sentence_settings(
    folder: Path,
    recipe: PoolingRecipe,
    spec: EncoderSpec,
    *,
    max_seq_length: int | None,
    dimension: int,
    base_model: str | None,
) -> None:
    """Write what a directory has beside the encoder and the tokenizer, and the card.

    max_seq_length: the most tokens of a text; None: no limit.
    dimension: features of a vector.
    base_model: the model that this one was made of.
    """
    # Lower-casing is a part of the tokenizer that was saved.
    settings = {"max_seq_length": max_seq_length, "do_lower_case": False}
    _write(folder / "sentence_bert_config.json", settings)
    stated: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": dict(recipe.prompts),
        "default_prompt_name": recipe.default_prompt_name,
        "similarity_fn_name": recipe.similarity or "cosine",
    }
    if recipe.truncate_dim is not None:
        stated["truncate_dim"] = recipe.truncate_dim
    _write(folder / CONFIG, stated)
    pooling = folder / "1_Pooling" / "config.json"
    with writing(pooling):
        pooling.parent.mkdir(exist_ok=True)
    modes = list(recipe.pooling)
    _write(
        pooling,
        {
            "embedding_dimension": spec.width,
            "pooling_mode": modes[0] if len(modes) == 1 else modes,
            "include_prompt": recipe.include_prompt,
        },
    )
    write_card(
        folder,
        loader="Embedder",
        dimension=dimension,
        base_model=base_model,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "pooling": ", ".join(modes) + (", normalized" if recipe.normalized else ""),
            "tokens": "no limit" if max_seq_length is None else str(max_seq_length),
            "similarity": recipe.similarity or "cosine",
        },
    )
    kinds = ["Transformer", "Pooling", *(["Normalize"] if recipe.normalized else [])]
    # Last, because its presence marks a complete model.
    _write(
        folder / MODULES,
        [
            {
                "idx": number,
                "name": str(number),
                "path": "" if number == 0 else f"{number}_{kind}",
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, kind in enumerate(kinds)
        ],
    )


def _write(path: Path, value: object) -> None:
    content = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, content.encode("utf-8"))
