"""Writes encoders as checkpoints in Hugging Face layout, which transformers can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save as save_safetensors

from encoder_engine.errors import ConfigError, OutputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import check_no_leftovers
from encoder_engine.families.checkpoints.parameters import arrangements
from encoder_engine.families.config import INT8_CONFIG, spec_to_config
from encoder_engine.families.facts.names import origins
from encoder_engine.families.heads import count_outputs
from encoder_engine.families.registry import find_family
from encoder_engine.files import CHECKSUMS, write_atomically, write_checksums
from encoder_engine.models.checkpoints.stacking import unstack_parameter

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = ["save_encoder", "save_head_model"]


def save_encoder(encoder: Network, directory: str | os.PathLike[str]) -> None:
    """Write an encoder's checkpoint; see :meth:`Encoder.save_pretrained`."""
    config = _config_to_save(encoder)
    if encoder.quantization is not None:
        config["quantization_config"] = INT8_CONFIG
    _write_model(config, _tensors_to_save(encoder), directory)


def save_head_model(model: HeadNetwork, directory: str | os.PathLike[str]) -> None:
    """Write the checkpoint of an encoder and its head; see :meth:`HeadModel.save_pretrained`."""
    if model.encoder.quantization is not None:
        raise UnsupportedFeatureError(
            "an encoder in 8-bit integers cannot be saved with a head; save it before quantize()"
        )
    family = find_family(model.encoder.spec.model_type)
    config = _config_to_save(model.encoder) | {"architectures": [model.layout.architecture]}
    bare = _tensors_to_save(model.encoder)
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


def _config_to_save(encoder: Network) -> dict[str, Any]:
    config = spec_to_config(encoder.spec, encoder.config)
    config |= {"dtype": str(encoder.dtype).removeprefix("torch.")}
    for stale in ("torch_dtype", "quantization_config"):
        config.pop(stale, None)
    return config


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
    encoded_config = (json.dumps(config, indent=2) + "\n").encode()
    encoded_weights = save_safetensors(tensors, metadata={"format": "pt"})
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Until the new configuration is there the directory is not a model: the old weights must
        # never be read by the new configuration, nor the new ones by the old.
        for name in (CHECKSUMS, "config.json"):
            (target / name).unlink(missing_ok=True)
        write_atomically(target / "model.safetensors", encoded_weights)
        write_atomically(target / "config.json", encoded_config)
        write_checksums(target, ["config.json", "model.safetensors"])
    except OSError as error:
        raise OutputError(f"cannot save the encoder to {target}: {error}") from error
