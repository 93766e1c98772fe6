"""Loads an embedder's parts from a model directory."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from encoder_engine.embedding.directory.opening import open_embedder
from encoder_engine.embedding.engines.choosing import EngineRequest, is_compiled, load_encoder
from encoder_engine.embedding.parts import EmbedderParts, Loading
from encoder_engine.embedding.steps.layers import layer_weights
from encoder_engine.errors import ConfigError, DefaultPoolingWarning, MissingPoolerWarning
from encoder_engine.families.checkpoints.files import hub_of_base
from encoder_engine.families.checkpoints.opening import verified
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from encoder_engine.embedding.directory.recipe import PoolingRecipe
    from encoder_engine.embedding.steps.layers import Layers

__all__ = ["load_parts"]

Parts = TypeVar("Parts", bound=EmbedderParts)


def load_parts(
    parts_type: type[Parts],
    path_or_hub_id: str | os.PathLike[str],
    request: EngineRequest,
    *,
    pooling: str | Sequence[str] | None,
    max_seq_length: int | None,
    layers: Layers | None,
) -> Parts:
    """Load a model directory; see :meth:`Embedder.from_pretrained`."""
    opened = open_embedder(path_or_hub_id)
    modes = None if pooling is None else (pooling,) if isinstance(pooling, str) else tuple(pooling)
    # Begun before the tokenizer is read, the comparison ends with the loading of the weights. A
    # compiled file is mapped instead of read, and has checksums of its own.
    folder = opened.encoder_folder
    with nullcontext() if is_compiled(folder) else verified(folder):
        recipe, tokenizer = opened.read_recipe(modes), opened.read_tokenizer()
        if request.adapter in recipe.prompts:
            # Prompts of models with an adapter for each task bear the names of the tasks.
            recipe = replace(recipe, default_prompt_name=request.adapter)
        with warnings.catch_warnings():
            # Pooling reads the token vectors, never the pooler's.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            encoder = load_encoder(recipe.encoder_directory, request)
    _check_layers(recipe, encoder.spec.num_layers)
    if layers is not None:
        recipe = replace(recipe, layers=layer_weights(layers, encoder.spec.num_layers))
    if max_seq_length is None:
        parts = parts_type(encoder, tokenizer, recipe)
    else:
        parts = parts_type(encoder, tokenizer, replace(recipe, max_seq_length=None))
        parts.recipe = recipe
        parts.max_seq_length = max_seq_length
    if recipe.default_pooling:
        warn_caller(
            DefaultPoolingWarning(
                f"{opened.directory} has no modules.json to say how tokens are pooled, so their "
                "mean is taken; to choose another, pass pooling= (cls, mean, max, ...)"
            )
        )
    parts.loading = Loading(
        path=str(opened.directory),
        options={
            **request.options(parts.engine.name),
            "pooling": modes,
            "max_seq_length": max_seq_length,
            "layers": None if recipe.layers is None else dict(recipe.layers),
            "task": request.adapter,
            **hub_of_base(),
        },
    )
    return parts


def _check_layers(recipe: PoolingRecipe, num_layers: int) -> None:
    """Raise :class:`ConfigError` where the directory mixes layers that the encoder does not have.

    sentence-transformers mixes as many layers as there are weights, to the last.
    """
    if recipe.layers is not None and recipe.layers[-1][0] != num_layers:
        raise ConfigError(
            f"{recipe.encoder_directory} has {num_layers} layers, WeightedLayerPooling mixes those "
            f"to {recipe.layers[-1][0]}; the files belong to different models"
        )
