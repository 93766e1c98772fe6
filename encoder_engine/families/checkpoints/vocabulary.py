"""Reads the output layer of a causal model: its own weight, or the tied token embeddings."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.errors import TensorNamesError, TensorShapeError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import dtype_name
from encoder_engine.families.checkpoints.assembling import Assembly
from encoder_engine.families.checkpoints.opening import open_checkpoint
from encoder_engine.families.facts.names import Rename
from encoder_engine.families.facts.values import config_values

if TYPE_CHECKING:
    import os

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["OutputLayer", "join_output_layer", "read_output_layer"]

# The key of Gemma's cap of logits.
SOFTCAP = "final_logit_softcapping"
TIED = "tie_word_embeddings"


class OutputLayer(NamedTuple):
    """The output layer of a causal model.

    weight_VD: its weight, V the vocabulary, D the encoder's width; None: tied to the token
    embeddings.
    softcap: logits become ``softcap * tanh(logit / softcap)``; None: no cap.
    """

    weight_VD: Array | None
    softcap: float | None


def join_output_layer(encoder: str, weight_VD: Array, softcap: float | None) -> str:
    """Return the SHA-256 of an encoder's fingerprint joined with an output layer in memory."""
    settings = f"\0{dtype_name(weight_VD.dtype)} {list(weight_VD.shape)} {softcap}\0"
    digest = hashlib.sha256((encoder + settings).encode())
    digest.update(np.ascontiguousarray(weight_VD).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def read_output_layer(directory: str | os.PathLike[str]) -> OutputLayer:
    """Read the output layer of a directory's checkpoint.

    Raises :class:`UnsupportedFeatureError` for a model that is not causal, or that attends to later
    tokens, :class:`TensorNamesError` for a missing output layer, and the exceptions of
    :func:`open_checkpoint`.
    """
    with ExitStack() as files:
        checkpoint = open_checkpoint(directory, files)
        name = checkpoint.family.vocabulary
        spec = checkpoint.spec
        if name is None or not spec.is_causal:
            raise UnsupportedFeatureError(
                f"{checkpoint.directory} holds a {spec.model_type} whose tokens see later ones: it "
                "gives texts no probability; pass a causal model"
            )
        values = config_values(checkpoint.config)
        cap = values.get(SOFTCAP)
        softcap = None if cap.is_null else cap.number(least=0)
        stored = checkpoint.heads.get(f"{name}.weight")
        tied = values.get(TIED).boolean(checkpoint.family.vocabulary_tied)
        if stored is None and not tied:
            raise TensorNamesError(
                f"{checkpoint.directory} has no {name}.weight, and in this {spec.model_type} it is "
                f"not the table of tokens, because config.json does not say {TIED}: true; the "
                "checkpoint was saved without its output layer",
                missing=[f"{name}.weight"],
            )
        if stored is None or tied:
            return OutputLayer(None, softcap)
        shape = (spec.embedding.vocab_size, spec.width)
        if stored.shape != shape:
            raise TensorShapeError(
                f"{name}.weight is {list(stored.shape)}, config.json says {list(shape)}",
                mismatched=[(f"{name}.weight", stored.shape, shape)],
            )
        own = {f"{name}.weight": stored}
        assembly = Assembly({"output.weight": shape}, own, [Rename("output", name)])
        return OutputLayer(assembly.read_one("output.weight"), softcap)
