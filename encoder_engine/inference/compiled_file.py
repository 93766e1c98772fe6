"""Stores a compiled encoder in a file that is memory-mapped: loading reads and packs nothing.

How it works: the file is a safetensors file of bytes. Its metadata describes the encoder and the
arrays; every array begins at a multiple of 64 bytes, as the kernels' memory does. The packed layout
is the same for all instruction sets. All processes that map the file share its pages. A 64-bit hash
of all arrays is compared at loading, at memory bandwidth, and a SHA-256 of the description.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from encoder_engine import _native
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CheckpointFileError
from encoder_engine.families.checkpoints.arrays import BFLOAT16, Array, dtype_name
from encoder_engine.families.checkpoints.parameters import encoder_shapes, head_shapes
from encoder_engine.families.facts.spec import NormSpec
from encoder_engine.families.heads import count_outputs, find_layout
from encoder_engine.files import PendingFile, writing
from encoder_engine.inference.layers import (
    Convolution,
    Dense,
    NormWeights,
    QuantizedDense,
    arrays_of,
)
from encoder_engine.inference.memory import ALIGNMENT, address

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from encoder_engine.families.checkpoints.parameters import Shapes
    from encoder_engine.families.facts.head_layout import Task
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.inference.layers import Layer

__all__ = ["HEAD", "Description", "check_layers", "map_compiled", "write_compiled"]

# The prefix of the names of a head's layers.
HEAD = "head."
# The version of the layout of arrays and of the description.
VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Description:
    """The settings of an encoder that a compiled file stores beside the weights.

    config: the content of the checkpoint's config.json.
    has_pooler: the file holds the pooler's weights.
    head: the task of the head that is in the file; None: no head.
    """

    config: dict[str, Any]
    dtype: str
    quantization: str | None
    has_pooler: bool
    head: Task | None


def write_compiled(path: Path, description: Description, layers: Mapping[str, Layer]) -> None:
    """Write an encoder's description and layers to a compiled file, atomically."""
    arrays = {
        f"{name}/{part}": np.ascontiguousarray(array)
        for name, layer in sorted(layers.items())
        for part, array in arrays_of(layer).items()
    }
    stated = vars(description) | {
        "arrays": {
            name: [dtype_name(array.dtype), list(array.shape)] for name, array in arrays.items()
        },
        "epsilons": {
            name: layer.spec.epsilon
            for name, layer in layers.items()
            if isinstance(layer, NormWeights)
        },
        "sizes": {name: _sizes_of(layer) for name, layer in layers.items()},
    }
    text = json.dumps(stated, sort_keys=True)
    metadata = {
        "format": "encoder_engine compiled",
        "version": str(VERSION),
        "description": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "hash": str(_hash(arrays)),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        header[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-(8 + len(encoded)) % ALIGNMENT)
    pending = PendingFile(path, overwrite=True)
    try:
        with writing(path):
            pending.stream.write(len(encoded).to_bytes(8, "little") + encoded)
            for array in arrays.values():
                pending.stream.write(array.reshape(-1).view(np.uint8).data)
                pending.stream.write(bytes(-array.nbytes % ALIGNMENT))
            pending.publish()
    finally:
        pending.discard()


def map_compiled(path: Path) -> tuple[Description, dict[str, Layer]]:
    """Memory-map a compiled file; return its description and, by name, its layers.

    Raises :class:`CheckpointFileError` for a file that is damaged, of another version, or no
    compiled encoder.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
        with path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
            pages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointFileError(
            f"{path} is not a readable compiled encoder: {error}; compile it again"
        ) from error
    if metadata.get("format") != "encoder_engine compiled":
        raise CheckpointFileError(f"{path} is not a compiled encoder")
    if metadata.get("version") != str(VERSION):
        raise CheckpointFileError(
            f"{path} is of version {metadata.get('version')} of compiled encoders, this release "
            f"reads version {VERSION}; compile it again"
        )
    text = metadata.get("description", "")
    if hashlib.sha256(text.encode()).hexdigest() != metadata.get("sha256"):
        raise CheckpointFileError(f"the description in {path} is damaged; compile it again")
    try:
        return _read(path, pages, header, 8 + size, json.loads(text), metadata.get("hash"))
    # A description of another form, which somebody else wrote.
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointFileError(
            f"{path} is not a readable compiled encoder: {error!r}; compile it again"
        ) from error


def _read(
    path: Path,
    pages: mmap.mmap,
    header: dict[str, Any],
    first: int,
    stated: dict[str, Any],
    recorded: str | None,
) -> tuple[Description, dict[str, Layer]]:
    """Return the description and layers of a mapped file, whose arrays begin at byte ``first``.

    ``stated``: the description with the arrays' shapes. ``recorded``: the hash of the arrays.
    """
    arrays = {}
    for name, (dtype, shape) in stated.pop("arrays").items():
        if name not in header:
            raise CheckpointFileError(f"{path} has no {name}, which it names; compile it again")
        start, end = header[name]["data_offsets"]
        arrays[name] = _view(pages, first + start, end - start, dtype, tuple(shape))
    if str(_hash(arrays)) != recorded:
        raise CheckpointFileError(f"the weights in {path} are damaged; compile it again")
    sizes, epsilons = stated.pop("sizes"), stated.pop("epsilons")
    parts = defaultdict[str, dict[str, Array]](dict)
    for name, array in arrays.items():
        layer, _, part = name.rpartition("/")
        parts[layer][part] = array
    dtype = BFLOAT16 if stated["dtype"] == "bfloat16" else np.dtype(np.float32)
    layers = {
        name: _layer(found, sizes[name], epsilons.get(name, 0.0), dtype)
        for name, found in parts.items()
    }
    return Description(**stated), layers


def check_layers(
    path: Path, layers: Mapping[str, Layer], spec: EncoderSpec, description: Description
) -> None:
    """Raise :class:`CheckpointFileError` unless every layer has the size that the spec says.

    The kernels trust these sizes, and a file from elsewhere may state any.
    """
    whole = replace(spec, pooler=description.has_pooler)
    expected = dict(encoder_shapes(whole))
    if description.head is not None:
        layout = find_layout(spec.model_type, description.head)
        num_outputs = count_outputs(layout, spec, description.config)
        found = head_shapes(layout, spec, num_outputs)
        if layout.task == "masked-lm":
            found["output.weight"] = (num_outputs, spec.embedding.width)
        expected |= {f"{HEAD}{name}": shape for name, shape in found.items()}
    for name, layer in layers.items():
        if not _fits(layer, name, expected, description.dtype):
            raise CheckpointFileError(
                f"{path}: {name} has not the size that its config.json says; compile it again"
            )


def _fits(layer: Layer, name: str, expected: Shapes, dtype: str) -> bool:
    if isinstance(layer, np.ndarray):
        return (layer.shape, dtype_name(layer.dtype)) == (expected.get(name), dtype)
    shape, biased = expected.get(f"{name}.weight"), f"{name}.bias" in expected
    if shape is None or biased != (_bias_of(layer) is not None):
        return False
    if isinstance(layer, NormWeights):
        vectors = [layer.weight, *([] if layer.bias is None else [layer.bias])]
        return all((v.shape, dtype_name(v.dtype)) == (shape, dtype) for v in vectors)
    dense = layer.dense if isinstance(layer, Convolution) else layer
    width, depth = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    item_bytes = 1 if isinstance(dense, QuantizedDense) else dense.dtype.itemsize
    needed = _native.panels_bytes(width, depth * item_bytes)
    is_whole = isinstance(dense, QuantizedDense)
    ends = [] if dense.bias is None else [(dense.bias, "float32" if is_whole else dtype)]
    if isinstance(dense, QuantizedDense):
        ends.append((dense.scales, "float32"))
    return (
        (dense.width, dense.depth) == (width, depth)
        and (dense.content.dtype.itemsize, dense.content.nbytes >= needed) == (1, True)
        and all((v.shape, dtype_name(v.dtype)) == ((width,), kind) for v, kind in ends)
    )


def _bias_of(layer: Dense | QuantizedDense | NormWeights | Convolution) -> Array | None:
    """Return a layer's bias, or None."""
    return layer.dense.bias if isinstance(layer, Convolution) else layer.bias


def _sizes_of(layer: Layer) -> list[int]:
    """Return a layer's width, depth and, for convolutions, kernel size; [] for tables and norms."""
    if isinstance(layer, Convolution):
        return [layer.dense.width, layer.dense.depth, layer.kernel_size]
    return [layer.width, layer.depth] if isinstance(layer, Dense | QuantizedDense) else []


def _layer(
    parts: dict[str, Array], sizes: list[int], epsilon: float, dtype: np.dtype[Any]
) -> Layer:
    """Return a layer made of its arrays; their names say whether it is dense, a norm or a table."""
    if "table" in parts:
        return parts["table"]
    bias = parts.get("bias")
    if "weight" in parts:
        # The rest of the spec comes from the encoder's.
        return NormWeights(weight=parts["weight"], bias=bias, spec=NormSpec(epsilon=epsilon))
    (width, depth), content = sizes[:2], parts["content"]
    if "scales" in parts:
        scales = parts["scales"]
        return QuantizedDense(content=content, scales=scales, bias=bias, depth=depth, width=width)
    dense = Dense(content=content, bias=bias, dtype=dtype, depth=depth, width=width)
    return Convolution(dense=dense, kernel_size=sizes[2]) if len(sizes) == 3 else dense


def _hash(arrays: Mapping[str, Array]) -> int:
    places = [(address(arrays[name]), arrays[name].nbytes) for name in sorted(arrays)]
    return _native.hash_memory(places, _native.default_threads())


def _view(
    pages: mmap.mmap, start: int, num_bytes: int, dtype: str, shape: tuple[int, ...]
) -> Array:
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count * kind.itemsize > num_bytes:
        raise CheckpointFileError(f"an array of {count} {dtype} does not fit in {num_bytes} bytes")
    return np.frombuffer(pages, dtype=kind, count=count, offset=start).reshape(shape)
