"""Writes an embedder as a directory of sentence-transformers, with its card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.saving.card import write_card
from encoder_engine.embedding.saving.modules import (
    check_writable,
    open_target,
    write_json,
    write_module,
    write_modules_json,
    write_transformer_settings,
)
from encoder_engine.errors import OutputError, UnsupportedFeatureError
from encoder_engine.files import writing
from encoder_engine.opening.modules import MODULES, SPARSE_FILE, TOKENS_FILE
from encoder_engine.packing.module_stack import NormalizeModule

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.opening.recipe import PoolingRecipe

__all__ = ["save_embedder", "write_sentence_settings"]


def save_embedder(
    embedder: Any,
    directory: str | os.PathLike[str],
    *,
    write_layers: Callable[[Path], None] | None = None,
) -> None:
    """Write an embedder's directory, with all files; see :meth:`Embedder.save_pretrained`.

    write_layers: a function that writes the two layer files of a hybrid embedder; None: the
    embedder is not hybrid.
    """
    recipe = embedder.recipe
    if recipe.layers is not None:
        raise UnsupportedFeatureError(
            "layers= has no module in sentence-transformers; save an embedder of the last layer"
        )
    embedder.refuse_routes()
    check_writable(recipe.modules)
    own = embedder.name
    stale = [name for name in (SPARSE_FILE, TOKENS_FILE) if (Path(directory) / name).exists()]
    if stale and write_layers is None:
        raise OutputError(
            f"{directory} holds {stale[0]}, the layer of another encoder than the one that is to "
            "be saved; name another folder, or remove the file first"
        )
    folder = open_target(directory, own)
    embedder.engine.save_encoder(folder)
    embedder.tokenizer.save(folder)
    if write_layers is not None:
        write_layers(folder)
    write_sentence_settings(
        folder,
        recipe,
        embedder.engine.spec,
        max_seq_length=embedder.max_seq_length,
        dimension=embedder.dimension,
        base_model=embedder.path,
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
    """Write the settings, the modules and the model card of an embedder's directory.

    The caller writes the encoder and the tokenizer.

    recipe: the pooling, the modules after it, prompts and further settings.
    max_seq_length: the most tokens of a text; None: no limit.
    dimension: features of a vector.
    base_model: the model that this one was derived from.
    """
    after = (*recipe.modules.modules, *([NormalizeModule()] if recipe.normalized else []))
    stated: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": dict(recipe.prompts),
        "default_prompt_name": recipe.default_prompt_name,
        "similarity_fn_name": recipe.similarity or "cosine",
    }
    if recipe.truncate_dim is not None:
        stated["truncate_dim"] = recipe.truncate_dim
    write_transformer_settings(folder, stated, max_seq_length=max_seq_length)
    pooling = folder / "1_Pooling" / "config.json"
    with writing(pooling):
        pooling.parent.mkdir(exist_ok=True)
    modes = list(recipe.pooling)
    write_json(
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
        subject=f"Texts to vectors of {dimension} features.",
        base_model=base_model,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "pooling": ", ".join(modes) + (", normalized" if recipe.normalized else ""),
            "tokens": "no limit" if max_seq_length is None else str(max_seq_length),
            "similarity": recipe.similarity or "cosine",
        },
    )
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    for number, module in enumerate(after, start=len(kinds)):
        place = f"{number}_{type(module).__name__.removesuffix('Module')}"
        kinds[place] = write_module(folder / place, module)
    # Last, because its presence marks a complete model.
    write_modules_json(folder / MODULES, kinds)
