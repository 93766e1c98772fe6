"""Writes a compiled encoder's weights as a checkpoint in Hugging Face layout, without PyTorch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import check_no_leftovers
from encoder_engine.families.checkpoints.assembling import unstack_array
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.checkpoints.writing import write_model, write_tensors
from encoder_engine.families.config import config_to_save
from encoder_engine.families.facts.names import origins
from encoder_engine.families.heads import find_layout
from encoder_engine.families.registry import find_family
from encoder_engine.files import writing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.inference.encoder import CompiledEncoder

__all__ = ["save_checkpoint"]


def save_checkpoint(encoder: CompiledEncoder, directory: str | os.PathLike[str]) -> None:
    """Write config.json, model.safetensors and SHA256SUMS of an encoder as it is in memory.

    The tensors are the same that ``save_pretrained`` of a PyTorch module with these weights writes.
    Raises :class:`UnsupportedFeatureError` for an encoder in int8 with a head,
    :class:`ConfigError` for one that was compiled without a configuration, and
    :class:`OutputError`.
    """
    if encoder.head is not None and encoder.quantization is not None:
        raise UnsupportedFeatureError(
            "an encoder in 8-bit integers cannot be saved with a head; load it without quantization"
        )
    if not encoder.config:
        raise ConfigError(
            "this encoder was compiled without a configuration, which its checkpoint needs; pass "
            "config= to from_parameters"
        )
    config = config_to_save(encoder.spec, encoder.config, encoder.dtype, encoder.quantization)
    tensors = _tensors(encoder.spec, encoder.parameters())
    if encoder.head is not None:
        family = find_family(encoder.spec.model_type)
        layout = find_layout(encoder.spec.model_type, encoder.head)
        config["architectures"] = [layout.architecture]
        tensors = {f"{family.prefix}{name}": array for name, array in tensors.items()}
        parameters = dict(encoder.parameters(head=True))
        if layout.task == "masked-lm":
            del parameters["output.weight"]  # the table of tokens, which is saved with the encoder
        for name, origin in origins(layout.renames, parameters).items():
            tensors |= unstack_array(origin, parameters[name])
    target = Path(directory)
    check_no_leftovers(target)
    with writing(target):
        write_model(target, config, partial(write_tensors, tensors=tensors))


def _tensors(spec: EncoderSpec, parameters: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Return the tensors of a checkpoint, by their names in it, from an encoder's parameters."""
    found = dict(parameters)
    tensors: dict[str, Array] = {}
    renames = find_family(spec.model_type).renames
    for name, origin in origins(renames, found, arrangements(spec)).items():
        tensors |= unstack_array(origin, found[name])
    return tensors
