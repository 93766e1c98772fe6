"""Writes encoders as checkpoints in Hugging Face layout, which transformers can read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save as save_safetensors

from encoder_engine.errors import ConfigError, OutputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import check_no_leftovers
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.checkpoints.writing import write_model
from encoder_engine.families.config import config_to_save
from encoder_engine.families.facts.names import origins
from encoder_engine.families.heads import count_outputs
from encoder_engine.families.registry import find_family
from encoder_engine.files import write_atomically
from encoder_engine.models.checkpoints.stacking import unstack_parameter

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = ["save_encoder", "save_head_model"]


def save_encoder(encoder: Network, directory: str | os.PathLike[str]) -> None:
    """Write an encoder's checkpoint; see :meth:`Encoder.save_pretrained`."""
    config = config_to_save(encoder.spec, encoder.config, encoder.dtype, encoder.quantization)
    _write_model(config, _tensors_to_save(encoder), directory)


def save_head_model(model: HeadNetwork, directory: str | os.PathLike[str]) -> None:
    """Write the checkpoint of an encoder and its head; see :meth:`HeadModel.save_pretrained`."""
    encoder = model.encoder
    if encoder.quantization is not None:
        raise UnsupportedFeatureError(
            "an encoder in 8-bit integers cannot be saved with a head; save it before quantize()"
        )
    family = find_family(encoder.spec.model_type)
    config = config_to_save(encoder.spec, encoder.config, encoder.dtype, None)
    config["architectures"] = [model.layout.architecture]
    bare = _tensors_to_save(encoder)
    tensors = {f"{family.prefix}{name}": tensor for name, tensor in bare.items()}
    parameters = model.head.state_dict()
    if model.layout.task != "masked-lm":
        _check_labels(len(parameters["output.weight"]), model, config)
    for name, origin in origins(model.layout.renames, parameters).items():
        tensors |= unstack_parameter(origin, parameters[name].detach().cpu())
    _write_model(config, tensors, directory)


def _check_labels(num_outputs: int, model: HeadNetwork, config: dict[str, Any]) -> None:
    """Raise :class:`ConfigError` if the head has not as many outputs as ``config`` has labels."""
    named = count_outputs(model.layout, model.encoder.spec, config)
    if named != num_outputs:
        raise ConfigError(
            f"this head has {num_outputs} outputs, the encoder's configuration names {named} "
            "labels, such as those of another head of the same encoder: set config['id2label'] "
            "and config['label2id'] to this head's before saving it"
        )


def _tensors_to_save(encoder: Network) -> dict[str, Tensor]:
    family = find_family(encoder.spec.model_type)
    tensors: dict[str, Tensor] = {}
    parameters = encoder.state_dict()
    arranged = arrangements(encoder.spec)
    for name, origin in origins(family.renames, parameters, arranged).items():
        tensors |= unstack_parameter(origin, parameters[name].detach().cpu())
    return tensors


def _write_model(
    config: dict[str, Any], tensors: dict[str, Tensor], directory: str | os.PathLike[str]
) -> None:
    target = Path(directory)
    check_no_leftovers(target)
    encoded = save_safetensors(tensors, metadata={"format": "pt"})
    try:
        write_model(target, config, partial(write_atomically, content=encoded))
    except OSError as error:
        raise OutputError(f"cannot save the encoder to {target}: {error}") from error
