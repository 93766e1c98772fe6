"""Reads the parts of an embedder from a directory: encoder, tokenizer and pooling."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.engine.choosing import is_compiled, load_model
from encoder_engine.errors import ConfigError, MissingPoolerWarning
from encoder_engine.families.checkpoints.opening import verified

if TYPE_CHECKING:
    from encoder_engine.engine.choosing import EngineRequest
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import Encoder
    from encoder_engine.opening.opening import ModelDirectory
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.text import Tokenizer

__all__ = ["read_parts"]


def read_parts(
    opened: ModelDirectory,
    request: EngineRequest,
    pooling: tuple[str, ...] | None,
    encoder: CompiledEncoder | Encoder | None = None,
) -> tuple[CompiledEncoder | Encoder, Tokenizer, PoolingRecipe]:
    """Read a directory's encoder, tokenizer and recipe, which has the pooling.

    encoder: the encoder, if it is already loaded.
    pooling: modes instead of the directory's.

    Raises :class:`ConfigError` if the directory's weighted sum of layers names layers that the
    encoder lacks; others: see :meth:`Embedder.from_pretrained`.
    """
    # The comparison with checksums begins before the tokenizer is read, and ends with the loading
    # of the weights. A compiled file is mapped instead of read, and has checksums of its own.
    folder = opened.encoder_folder
    with nullcontext() if is_compiled(folder) else verified(folder):
        recipe, tokenizer = opened.read_recipe(pooling), opened.read_tokenizer()
        if request.adapter in recipe.prompts:
            # Prompts of models with an adapter for each task bear the names of the tasks.
            recipe = replace(recipe, default_prompt_name=request.adapter)
        if encoder is None:
            with warnings.catch_warnings():
                # Pooling reads the token vectors, never the pooler's.
                warnings.simplefilter("ignore", MissingPoolerWarning)
                encoder = load_model(recipe.encoder_directory, request)
    num_layers = encoder.spec.num_layers
    # sentence-transformers mixes as many layers as there are weights, up to the last layer.
    if recipe.layers is not None and recipe.layers[-1][0] != num_layers:
        raise ConfigError(
            f"{recipe.encoder_directory} has {num_layers} layers, WeightedLayerPooling mixes those "
            f"to {recipe.layers[-1][0]}; the files belong to different models"
        )
    return encoder, tokenizer, recipe
