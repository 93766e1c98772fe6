"""Checkpoints in Hugging Face layout to encoders and back; every tensor is accounted for."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from safetensors.torch import save as save_safetensors

from encoder_engine.errors import (
    CheckpointFileError,
    MissingPoolerWarning,
    NonFiniteWeightsError,
    OutputError,
    SuspiciousWeightsWarning,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.files import (
    CHECKSUMS,
    verify_checksums,
    write_atomically,
    write_checksums,
)
from encoder_engine.models.config import (
    INT8_CONFIG,
    read_config,
    spec_from_config,
    spec_to_config,
)
from encoder_engine.models.constants import Constant
from encoder_engine.models.files import read_tensors, resolve_directory
from encoder_engine.models.names import modern_name, origins
from encoder_engine.models.placement import resolve_device, resolve_dtype
from encoder_engine.models.quantized import load_quantized, quantized_parameters
from encoder_engine.models.registry import Family, find_family

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from encoder_engine.models.encoder import Encoder
    from encoder_engine.models.spec import EncoderSpec

__all__ = ["load_encoder", "resolve_directory", "save_encoder"]

EncoderType = TypeVar("EncoderType", bound="Encoder")

# Buffers that older versions of transformers saved; their content follows from the config.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# A trained weight is of order 1; a flipped exponent bit makes it 1e9 or far more.
LARGEST_PLAUSIBLE = 1e4


def load_encoder(
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
    quantized: bool,
) -> EncoderType:
    """Build the encoder a directory describes; see :meth:`Encoder.from_pretrained`."""
    # What makes no sense is refused before any file is read.
    resolve_device(device)
    resolve_dtype(dtype)
    directory = resolve_directory(path_or_hub_id)
    verify_checksums(directory)
    config = read_config(directory)
    saved_quantized = config.get("quantization_config") is not None
    device = resolve_device(device, quantized=quantized or saved_quantized)
    dtype = resolve_dtype(dtype, quantized=quantized or saved_quantized)
    if saved_quantized and device.type != "cpu":
        raise UnsupportedFeatureError(
            f"{directory} holds a model in 8-bit integers, which runs on a CPU, not on {device}"
        )
    spec = spec_from_config(config)
    family = find_family(spec.model_type)
    tensors = _encoder_tensors(read_tensors(directory), family)
    _check_number_of_blocks(spec, tensors, family)
    with torch.device("meta"):
        encoder = encoder_type(spec, config=config)
    if encoder.pooler is not None and not any(name.startswith("pooler.") for name in tensors):
        warnings.warn(
            MissingPoolerWarning(f"{directory} has no pooler weights; pooler_output will be None"),
            stacklevel=3,
        )
        encoder.pooler = None
    parameters: dict[str, Tensor] = encoder.state_dict()
    if saved_quantized:
        parameters |= quantized_parameters(encoder)
    state = _assemble(parameters, tensors, family)
    if saved_quantized:
        state = load_quantized(encoder, state)
    state = {name: tensor.to(device=device, dtype=dtype) for name, tensor in state.items()}
    _check_overflow(state, dtype)
    encoder.load_state_dict(state, strict=True, assign=True)
    for module in encoder.modules():
        if isinstance(module, Constant):
            module.fit(device, dtype)
    return encoder.eval().requires_grad_(not saved_quantized)


def save_encoder(encoder: Encoder, directory: str | os.PathLike[str]) -> None:
    """Write what transformers reads as well; see :meth:`Encoder.save_pretrained`."""
    target = Path(directory)
    family = find_family(encoder.spec.model_type)
    config = spec_to_config(encoder.spec, encoder.config)
    config |= {"dtype": str(encoder.dtype).removeprefix("torch.")}
    for stale in ("torch_dtype", "quantization_config"):
        config.pop(stale, None)
    if encoder.quantization is not None:
        config["quantization_config"] = INT8_CONFIG
    encoded_config = (json.dumps(config, indent=2) + "\n").encode()
    tensors: dict[str, Tensor] = {}
    parameters = encoder.state_dict()
    for ours, origin in origins(family.renames, parameters).items():
        tensors |= origin.split(parameters[ours].detach().cpu())
    encoded_weights = save_safetensors(tensors, metadata={"format": "pt"})
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Until the new configuration is there the directory is no model: the old weights must
        # never be read by the new configuration, nor the new ones by the old.
        for name in (CHECKSUMS, "config.json"):
            (target / name).unlink(missing_ok=True)
        write_atomically(target / "model.safetensors", encoded_weights)
        write_atomically(target / "config.json", encoded_config)
        write_checksums(target, ["config.json", "model.safetensors"])
    except OSError as error:
        raise OutputError(f"cannot save the encoder to {target}: {error}") from error


def _encoder_tensors(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Keep the encoder's tensors under the names the family's base class gives them."""
    kept: dict[str, Tensor] = {}
    heads = []
    for name, tensor in tensors.items():
        bare = modern_name(name).removeprefix(family.prefix)
        if bare in BUFFERS:
            continue
        if bare.startswith(family.heads):
            heads.append(name)
            continue
        if bare in kept:
            raise TensorNamesError(
                f"the checkpoint holds {bare} twice, once as {name}", unexpected=[name]
            )
        kept[bare] = tensor
    for copy, original in family.copies.items():
        if copy in kept:
            _drop_copy(kept, copy, original)
    if heads:
        warnings.warn(
            UnusedWeightsWarning(
                f"an Encoder has no heads; left in the file: {', '.join(sorted(heads))}",
                names=sorted(heads),
            ),
            stacklevel=4,
        )
    return kept


def _drop_copy(tensors: dict[str, Tensor], copy: str, original: str) -> None:
    """Keep one of two names for what should be the same tensor."""
    copied = tensors.pop(copy)
    if not torch.equal(tensors.setdefault(original, copied), copied):
        raise CheckpointFileError(
            f"{copy} should be {original} again, but they differ; the checkpoint is damaged, or "
            "its model was trained with tables of their own, which is not supported"
        )


def _check_number_of_blocks(spec: EncoderSpec, tensors: dict[str, Tensor], family: Family) -> None:
    """Compare layer counts before any layer is built: a config may ask for thousands."""
    asked = len(spec.blocks)
    pattern = re.compile(re.escape(family.block_prefix).replace(r"\{block\}", r"(\d+)"))
    found = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    if asked > len(found):
        first = min(set(range(asked)) - found)
        missing = [f"{family.block_prefix.replace('{block}', str(first))}.*"]
        raise TensorNamesError(
            f"the weights and config.json do not belong together: config.json asks for {asked} "
            f"layers, the weights have {len(found)}: missing {missing[0]}",
            missing=missing,
        )


def _assemble(
    parameters: dict[str, Tensor], tensors: dict[str, Tensor], family: Family
) -> dict[str, Tensor]:
    """Map checkpoint tensors to parameters, or say everything that does not fit."""
    sources = origins(family.renames, parameters)
    wanted = {their: ours for ours, origin in sources.items() for their in origin.names}
    missing = sorted(set(wanted) - set(tensors))
    unexpected = sorted(set(tensors) - set(wanted))
    if missing or unexpected:
        raise TensorNamesError(
            f"the weights and config.json do not belong together: missing {_listed(missing)}; "
            f"unexpected {_listed(unexpected)}",
            missing=missing,
            unexpected=unexpected,
        )
    mismatched = []
    for ours, origin in sources.items():
        theirs = origin.names
        rows, *rest = parameters[ours].shape
        expected = (rows // len(theirs), *rest)
        mismatched += [
            (their, tuple(tensors[their].shape), expected)
            for their in theirs
            if tuple(tensors[their].shape) != expected
        ]
    if mismatched:
        told = "; ".join(
            f"{name} is {list(f)}, expected {list(e)}" for name, f, e in mismatched[:8]
        )
        raise TensorShapeError(
            f"{len(mismatched)} tensors do not have the shape config.json says: {told}",
            mismatched=mismatched,
        )
    whole = {their for their, ours in wanted.items() if parameters[ours].dtype == torch.int8}
    _check_values({their: tensors[their] for their in wanted if their not in whole})
    _check_whole({their: tensors[their] for their in whole})
    return {ours: origin.join(tensors) for ours, origin in sources.items()}


def _check_values(tensors: dict[str, Tensor]) -> None:
    suspicious = []
    for name, tensor in tensors.items():
        if tensor.dtype not in WEIGHT_DTYPES or tensor.layout != torch.strided:
            raise CheckpointFileError(
                f"{name} is {tensor.dtype}, {tensor.layout}; weights must be dense float64, "
                "float32, float16 or bfloat16 (a quantized checkpoint cannot be loaded)"
            )
        if tensor.numel() == 0:
            continue
        low, high = torch.aminmax(tensor)
        if not (torch.isfinite(low) and torch.isfinite(high)):
            flat = tensor.reshape(len(tensor), -1)
            rows = (~torch.isfinite(flat)).any(1).nonzero().flatten().tolist()
            raise NonFiniteWeightsError(
                f"{name} holds NaN or infinity in {len(rows)} of {len(tensor)} rows, the first "
                f"row {rows[0]}; the checkpoint is damaged or its training diverged"
            )
        if max(-float(low), float(high)) > LARGEST_PLAUSIBLE:
            suspicious.append(name)
    if suspicious:
        warnings.warn(
            SuspiciousWeightsWarning(
                f"weights beyond {LARGEST_PLAUSIBLE:g} in {', '.join(suspicious)}: a trained "
                "encoder has none, a damaged file does; compare the file with its source",
                names=suspicious,
            ),
            stacklevel=5,
        )


def _check_whole(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int8:
            raise CheckpointFileError(
                f"{name} is {tensor.dtype}; config.json says that it is quantized to int8"
            )


def _check_overflow(state: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Refuse weights that the chosen type cannot hold; they were finite in the file."""
    if dtype != torch.float16:
        return
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise NonFiniteWeightsError(
                f"{name} has weights beyond float16's 65504; load it as float32 or bfloat16"
            )


def _listed(names: list[str], *, most: int = 12) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
