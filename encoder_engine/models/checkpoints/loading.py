"""Loads encoders from checkpoints in Hugging Face layout; no tensor is ignored silently."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import torch

from encoder_engine import ops
from encoder_engine.errors import (
    CheckpointFileError,
    MissingPoolerWarning,
    NonFiniteWeightsError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.assembling import warn_of_suspicious
from encoder_engine.families.checkpoints.memory import trim_heap
from encoder_engine.families.checkpoints.opening import open_checkpoint, warn_of_unused
from encoder_engine.models.checkpoints.stacking import to_tensor
from encoder_engine.models.constants import Constant
from encoder_engine.models.linear import Linear, QuantizedLinear, replace_layers
from encoder_engine.models.placement import (
    check_quantizable,
    resolve_device,
    resolve_dtype,
)

if TYPE_CHECKING:
    import os

    from torch import Tensor, nn

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.checkpoints.opening import Checkpoint
    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = ["load_encoder", "load_head_model"]

EncoderType = TypeVar("EncoderType", bound="Network")
HeadModelType = TypeVar("HeadModelType", bound="HeadNetwork")


def load_encoder(
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
    quantized: bool,
    adapter: str | None = None,
) -> EncoderType:
    """Build the encoder that a directory describes; see :meth:`Encoder.from_pretrained`."""
    with ExitStack() as files:
        encoder, checkpoint = _load(
            *(encoder_type, path_or_hub_id, files),
            device=device,
            dtype=dtype,
            quantized=quantized,
            adapter=adapter,
        )
    warn_of_unused(
        checkpoint.heads, "only the encoder was loaded, whose vectors need no head", stacklevel=4
    )
    return encoder


def load_head_model(
    model_type: type[HeadModelType],
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
) -> HeadModelType:
    """Build a directory's encoder and head; see :meth:`HeadModel.from_pretrained`."""
    with ExitStack() as files:
        with warnings.catch_warnings():
            # The head decides whether a pooler is needed.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            encoder, checkpoint = _load(
                encoder_type, path_or_hub_id, files, device=device, dtype=dtype, quantized=False
            )
        model = model_type(encoder)
        parameters: dict[str, Tensor] = model.head.state_dict()
        # A head over the vocabulary has only a bias of its own.
        output = parameters.get("output.weight", parameters.get("output.bias"))
        assert output is not None
        assembly = checkpoint.assemble_head(
            model.layout,
            len(output),
            reads_pooler=model.rows == "pooled",
            hint=f"to begin with a new one: {model_type.__name__}("
            f"{encoder_type.__name__}.from_pretrained(...))",
        )
        state = _to_tensors(assembly.read(parameters))
    warn_of_suspicious(assembly.suspicious, stacklevel=4)
    tokens = encoder.embedding.tokens.weight
    _move_and_cast(state, tokens.device, tokens.dtype)
    model.head.load_state_dict(state, strict=True, assign=True)
    return model.eval().requires_grad_()


def _load(
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    files: ExitStack,
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
    quantized: bool,
    adapter: str | None = None,
) -> tuple[EncoderType, Checkpoint]:
    """Build the encoder, and return it with its checkpoint, readable while ``files`` are open."""
    # Wrong arguments are refused before any file is read.
    resolve_device(device)
    resolve_dtype(dtype)
    checkpoint = open_checkpoint(path_or_hub_id, files, adapter=adapter)
    saved_quantized = checkpoint.quantized
    device = resolve_device(device, quantized=quantized or saved_quantized)
    dtype = resolve_dtype(dtype, quantized=quantized or saved_quantized)
    if saved_quantized and device.type != "cpu":
        raise UnsupportedFeatureError(
            f"{checkpoint.directory} holds a model in 8-bit integers, which runs on a CPU, not on "
            f"{device}"
        )
    if quantized and not saved_quantized:
        check_quantizable(device, dtype)
    with torch.device("meta"):
        encoder = encoder_type(checkpoint.spec, config=checkpoint.config)
    if encoder.pooler is not None and not checkpoint.has_pooler:
        warnings.warn(
            MissingPoolerWarning(
                f"{checkpoint.directory} has no pooler weights; pooler_output will be None"
            ),
            stacklevel=4,
        )
        encoder.pooler = None
    assembly = checkpoint.assemble()
    # Part by part, so that the file's weights and the module's are never both fully in memory.
    for part, module in _parts(encoder).items():
        names = [name for name in checkpoint.shapes if name.startswith(f"{part}.")]
        state = _to_tensors(assembly.read(names))
        _fill(module, part, state, device=device, dtype=dtype)
        if quantized and not saved_quantized and module in encoder.blocks.children():
            replace_layers(module, Linear, Linear.quantize)
        trim_heap()
    warn_of_suspicious(assembly.suspicious, stacklevel=5)
    for module in encoder.modules():
        if isinstance(module, Constant):
            module.fit(device, dtype)
    return encoder.eval().requires_grad_(encoder.quantization is None), checkpoint


def _to_tensors(arrays: dict[str, Array]) -> dict[str, Tensor]:
    """Return arrays as tensors that share their memory; the dictionary ``arrays`` is emptied."""
    return {name: to_tensor(arrays.pop(name)) for name in list(arrays)}


def _move_and_cast(state: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Move and cast tensors one by one, so that at most one tensor is in memory twice.

    Raises :class:`NonFiniteWeightsError` for weights that float16 cannot hold.
    """
    for name in list(state):
        state[name] = tensor = state[name].to(device=device, dtype=dtype)
        # They were finite in the file.
        if dtype == torch.float16 and not torch.isfinite(tensor).all():
            raise NonFiniteWeightsError(
                f"{name} has weights beyond float16's 65504; load it as float32 or bfloat16"
            )


def _parts(encoder: Network) -> dict[str, nn.Module]:
    """Return the encoder's modules with weights, by name; the embedding, the largest, first."""
    blocks = {f"blocks.{place}": block for place, block in enumerate(encoder.blocks)}
    others = {name: part for name, part in encoder.named_children() if name != "blocks"}
    return others | blocks


def _fill(
    module: nn.Module,
    name: str,
    state: dict[str, Tensor],
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Load the tensors in ``state``, which is emptied, into a module; ``name``: its prefix in it.

    Memory is freed only if the caller holds no other reference to the tensors.
    """
    load_quantized(module, name, state)
    _move_and_cast(state, device, dtype)
    bare = {key.removeprefix(f"{name}."): state.pop(key) for key in list(state)}
    module.load_state_dict(bare, strict=True, assign=True)


def load_quantized(part: nn.Module, name: str, state: dict[str, Tensor]) -> None:
    """Replace a module's dense layers by int8 layers where ``state`` has scales for them.

    Their tensors are removed from ``state``; ``name``: the module's prefix in it. Raises
    :class:`CheckpointFileError` for a scale that is not above zero.
    """
    made = {}
    for path, layer in _layers(part, name).items():
        if f"{path}.weight_scale" not in state:
            continue
        scale_N = state.pop(f"{path}.weight_scale").float()
        if not bool((scale_N > 0).all()):
            raise CheckpointFileError(
                f"{path}.weight_scale holds {float(scale_N.min())}; scales are above zero, the "
                "checkpoint is damaged"
            )
        bias_N = state.pop(f"{path}.bias").float() if layer.bias is not None else None
        weight = ops.QuantizedWeight.pack(state.pop(f"{path}.weight"), scale_N, bias_N)
        made[layer] = QuantizedLinear(weight)
    if made:
        replace_layers(part, Linear, made.__getitem__)


def _layers(part: nn.Module, name: str) -> dict[str, Linear]:
    found = part.named_modules(prefix=name)
    return {path: layer for path, layer in found if isinstance(layer, Linear)}
