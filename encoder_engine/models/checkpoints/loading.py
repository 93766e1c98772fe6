"""Loads encoders from checkpoints in Hugging Face layout; every tensor is accounted for."""

from __future__ import annotations

import re
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch

from encoder_engine.errors import (
    MissingPoolerWarning,
    TensorNamesError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.families.config import (
    read_config,
    spec_from_config,
)
from encoder_engine.families.facts.names import modern_name, origins
from encoder_engine.families.registry import find_family
from encoder_engine.files import (
    verify_checksums,
)
from encoder_engine.models.checkpoints.assembling import (
    Assembly,
    check_tied,
    drop_copy,
    move_and_cast,
    warn_of_suspicious,
)
from encoder_engine.models.checkpoints.memory import trim_heap
from encoder_engine.models.checkpoints.quantized import (
    load_quantized,
    quantized_parameters,
)
from encoder_engine.models.checkpoints.tensors import StoredTensor, open_tensors, resolve_directory
from encoder_engine.models.constants import Constant
from encoder_engine.models.linear import Linear, replace_layers
from encoder_engine.models.placement import (
    check_quantizable,
    resolve_device,
    resolve_dtype,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable

    from torch import Tensor, nn

    from encoder_engine.families.facts.family import Family
    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models.head_network import HeadNetwork
    from encoder_engine.models.network import Network

__all__ = [
    "load_encoder",
    "load_head_model",
    "resolve_directory",
]

EncoderType = TypeVar("EncoderType", bound="Network")
HeadModelType = TypeVar("HeadModelType", bound="HeadNetwork")

# What a layout's copies call the token embeddings.
EMBEDDINGS = "embedding.tokens"
# Buffers that older versions of transformers saved; their content follows from the config.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def load_encoder(
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
    quantized: bool,
) -> EncoderType:
    """Build the encoder a directory describes; see :meth:`Encoder.from_pretrained`."""
    with ExitStack() as files:
        encoder, heads = _load_parts(
            encoder_type, path_or_hub_id, files, device=device, dtype=dtype, quantized=quantized
        )
    _warn_of_unused(heads, "only the encoder was loaded, whose vectors need no head", stacklevel=4)
    return encoder


def load_head_model(
    model_type: type[HeadModelType],
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
) -> HeadModelType:
    """Build the encoder and the head a directory holds; see :meth:`HeadModel.from_pretrained`."""
    with ExitStack() as files:
        with warnings.catch_warnings():
            # Whether a pooler is needed is the head's to say.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            encoder, tensors = _load_parts(
                encoder_type, path_or_hub_id, files, device=device, dtype=dtype, quantized=False
            )
        if encoder.quantization is not None:
            raise UnsupportedFeatureError(
                f"{path_or_hub_id} holds an encoder in 8-bit integers, which has no head; load it "
                "as an Encoder"
            )
        model = model_type(encoder)
        family, layout = find_family(encoder.spec.model_type), model.layout
        if model.rows == "pooled" and encoder.pooler is None:
            missing = [f"{family.prefix}pooler.*"]
            raise TensorNamesError(
                f"{path_or_hub_id} has no pooler weights, which {layout.architecture} needs",
                missing=missing,
            )
        tokens = encoder.embedding.tokens.weight
        for copy, original in layout.copies.items():
            if copy not in tensors:
                continue
            if original == EMBEDDINGS:
                check_tied(tensors.pop(copy).read().to(tokens), tokens, copy)
            else:
                drop_copy(tensors, copy, original)
        renames = [_bare(rename, family) for rename in layout.renames]
        parameters: dict[str, Tensor] = model.head.state_dict()
        wanted = {name for o in origins(renames, parameters).values() for name in o.names}
        others = tensors.keys() - wanted
        _warn_of_unused(others, f"{layout.architecture} has no such layers", stacklevel=4)
        own = {name: tensor for name, tensor in tensors.items() if name in wanted}
        if wanted and not own:
            raise TensorNamesError(
                f"{path_or_hub_id} holds no head of {layout.architecture}: missing "
                f"{', '.join(sorted(wanted)[:4])}; to begin with a new one: "
                f"{model_type.__name__}({encoder_type.__name__}.from_pretrained(...))",
                missing=sorted(wanted),
            )
        assembly = Assembly(parameters, own, renames)
        state = assembly.read(parameters)
    warn_of_suspicious(assembly.suspicious, stacklevel=4)
    move_and_cast(state, tokens.device, tokens.dtype)
    model.head.load_state_dict(state, strict=True, assign=True)
    return model.eval().requires_grad_()


def _load_parts(
    encoder_type: type[EncoderType],
    path_or_hub_id: str | os.PathLike[str],
    files: ExitStack,
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
    quantized: bool,
) -> tuple[EncoderType, dict[str, StoredTensor]]:
    """Build the encoder; return it and the heads' tensors, readable while ``files`` are open."""
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
    if quantized and not saved_quantized:
        check_quantizable(device, dtype)
    spec = spec_from_config(config)
    family = find_family(spec.model_type)
    tensors, heads = _split_off_heads(files.enter_context(open_tensors(directory)), family)
    _check_number_of_blocks(spec, tensors, family)
    with torch.device("meta"):
        encoder = encoder_type(spec, config=config)
    if encoder.pooler is not None and not any(name.startswith("pooler.") for name in tensors):
        warnings.warn(
            MissingPoolerWarning(f"{directory} has no pooler weights; pooler_output will be None"),
            stacklevel=4,
        )
        encoder.pooler = None
    parameters: dict[str, Tensor] = encoder.state_dict()
    if saved_quantized:
        parameters |= quantized_parameters(encoder)
    assembly = Assembly(parameters, tensors, family.renames)
    # What has been read is let go of; this would keep what is read of a .bin.
    del tensors
    # Part by part, so that the file's weights and the module's are never both fully in memory.
    for part, module in _parts(encoder).items():
        state = assembly.read(name for name in parameters if name.startswith(f"{part}."))
        _fill(module, part, state, device=device, dtype=dtype)
        if quantized and not saved_quantized and module in encoder.blocks.children():
            replace_layers(module, Linear, Linear.quantize)
        trim_heap()
    warn_of_suspicious(assembly.suspicious, stacklevel=5)
    for module in encoder.modules():
        if isinstance(module, Constant):
            module.fit(device, dtype)
    return encoder.eval().requires_grad_(encoder.quantization is None), heads


def _parts(encoder: Network) -> dict[str, nn.Module]:
    """Yield the parts with weights by name; the embedding, the largest, comes first."""
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
    """Assign a part its weights; the caller must hold no other reference to them."""
    load_quantized(module, name, state)
    move_and_cast(state, device, dtype)
    bare = {key.removeprefix(f"{name}."): state.pop(key) for key in list(state)}
    module.load_state_dict(bare, strict=True, assign=True)


def _split_off_heads(
    tensors: dict[str, StoredTensor], family: Family
) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """Return the encoder's tensors under the names of its base class, and the heads' tensors."""
    kept: dict[str, StoredTensor] = {}
    heads: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        bare = modern_name(name).removeprefix(family.prefix)
        if bare in BUFFERS:
            continue
        part = heads if bare.startswith(family.heads) else kept
        if bare in part:
            raise TensorNamesError(
                f"the checkpoint holds {bare} twice, once as {name}", unexpected=[name]
            )
        part[bare] = tensor
    for copy, original in family.copies.items():
        if copy in kept:
            drop_copy(kept, copy, original)
    return kept, heads


def _bare(rename: Rename, family: Family) -> Rename:
    """Return a rename with the names that :func:`_split_off_heads` returns."""
    assert isinstance(rename.theirs, str)
    return replace(rename, theirs=rename.theirs.removeprefix(family.prefix))


def _warn_of_unused(heads: Collection[str], why: str, *, stacklevel: int) -> None:
    if heads:
        names = sorted(heads)
        warnings.warn(
            UnusedWeightsWarning(f"{why}; not loaded: {', '.join(names)}", names=names),
            stacklevel=stacklevel,
        )


def _check_number_of_blocks(spec: EncoderSpec, tensors: Iterable[str], family: Family) -> None:
    """Raise :class:`TensorNamesError` where config.json has more layers than the weights.

    The check precedes building: a damaged config may state thousands of layers.
    """
    stated = len(spec.blocks)
    pattern = re.compile(re.escape(family.block_prefix).replace(r"\{block\}", r"(\d+)"))
    found = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    if stated > len(found):
        first = min(set(range(stated)) - found)
        missing = [f"{family.block_prefix.replace('{block}', str(first))}.*"]
        raise TensorNamesError(
            f"the weights and config.json do not belong together: config.json asks for {stated} "
            f"layers, the weights have {len(found)}: missing {missing[0]}",
            missing=missing,
        )
