"""The layers of a compiled encoder: weights in the layouts of the CPU kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from encoder_engine import _native
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    CheckpointFileError,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import (
    BFLOAT16,
    WEIGHT_DTYPES,
    cast,
    dtype_name,
    widen,
)
from encoder_engine.inference.memory import WeightMemory, address, aligned_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.checkpoints.assembling import Assembly
    from encoder_engine.families.facts.spec import NormSpec

__all__ = [
    "OUTPUT",
    "Convolution",
    "Dense",
    "Layer",
    "LayerReader",
    "MadeLayers",
    "NormWeights",
    "ParametersInMemory",
    "QuantizedDense",
    "Reader",
    "pack",
]

# 131,072 products of a byte less 128 and an int8, up to 128 * 128 each, may overflow int32.
MOST_TERMS = 2**17 - 1
# A head's last layer.
OUTPUT = "output"


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """A dense layer of ``width`` outputs and ``depth`` inputs, packed with its bias."""

    content: Array
    bias: Array | None
    dtype: np.dtype[Any]
    depth: int
    width: int

    def parameters(self) -> dict[str, Array]:
        """Return the unpacked weight [width, depth] and the bias, bit for bit."""
        weight = np.empty((self.width, self.depth), dtype=self.dtype)
        row_bytes = self.depth * self.dtype.itemsize
        _native.take_from_panels(address(self.content), self.width, row_bytes, address(weight))
        return _with_bias({"weight": weight}, self.bias)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedDense:
    """A dense layer in int8, with scales and bias float32 [width]."""

    content: Array
    scales: Array
    bias: Array | None
    depth: int
    width: int

    def parameters(self) -> dict[str, Array]:
        """Return the weight, int8 [width, depth], its scales and the bias."""
        weight = np.empty((self.width, self.depth), dtype=np.int8)
        _native.take_from_panels(address(self.content), self.width, self.depth, address(weight))
        return _with_bias({"weight": weight, "weight_scale": self.scales}, self.bias)


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution:
    """A convolution over neighbouring tokens, as a dense layer on ``kernel_size`` joined rows."""

    dense: Dense
    kernel_size: int

    def parameters(self) -> dict[str, Array]:
        """Return the weight, [features out, features in, kernel_size], and the bias."""
        found = self.dense.parameters()
        steps = found["weight"].reshape(self.dense.width, self.kernel_size, -1)
        return found | {"weight": np.ascontiguousarray(steps.transpose(0, 2, 1))}


@dataclass(frozen=True, kw_only=True, eq=False)
class NormWeights:
    """The weight and the bias of a norm, [D] each, and the norm's specification."""

    weight: Array
    bias: Array | None
    spec: NormSpec

    @cached_property
    def factors(self) -> Array:
        """The factor of each feature: the weight, plus the spec's offset if there is one."""
        if self.spec.offset == 0.0:
            return self.weight
        wide = widen(self.weight) + np.float32(self.spec.offset)
        return np.ascontiguousarray(cast(wide, dtype_name(self.weight.dtype)))

    def parameters(self) -> dict[str, Array]:
        """Return the norm's weight and, if it has one, its bias."""
        return _with_bias({"weight": self.weight}, self.bias)


def _with_bias(parameters: dict[str, Array], bias: Array | None) -> dict[str, Array]:
    return parameters if bias is None else parameters | {"bias": bias}


Kind = TypeVar("Kind")
Layer = np.ndarray[Any, np.dtype[Any]] | Convolution | Dense | QuantizedDense | NormWeights


class MadeLayers:
    """Finds layers that exist already, by name, by the reading methods of :class:`LayerReader`."""

    def __init__(self, layers: dict[str, Layer], *, dtype: str) -> None:
        self.made = layers
        self.dtype = dtype

    def table(self, name: str) -> Array:
        """Return the embedding table of this name."""
        return self._find(name, np.ndarray)

    def norm(self, name: str, spec: NormSpec | None) -> NormWeights | None:
        """Return the norm of this name; None without a specification."""
        if spec is None:
            return None
        made = self._find(name, NormWeights)
        return replace(made, spec=replace(spec, epsilon=made.spec.epsilon))

    def dense(self, name: str) -> Dense:
        """Return the dense layer of this name."""
        return self._find(name, Dense)

    def block_dense(self, name: str) -> Dense | QuantizedDense:
        """Return the dense layer of this name in a block, in int8 or not, as it was made."""
        layer = self.made.get(name)
        return layer if isinstance(layer, QuantizedDense) else self._find(name, Dense)

    def convolution(self, name: str) -> Convolution:
        """Return the convolution of this name."""
        return self._find(name, Convolution)

    def vocabulary(self, tokens: Array) -> Dense:
        """Return the output layer over the vocabulary; ``tokens`` is not used."""
        del tokens
        return self.dense(OUTPUT)

    def _find(self, name: str, kind: type[Kind]) -> Kind:
        layer = self.made.get(name)
        if not isinstance(layer, kind):
            raise CheckpointFileError(f"the compiled encoder has no {name} of kind {kind.__name__}")
        return layer


class ParametersInMemory:
    """An encoder's parameters as arrays in memory; layers share those whose layout they can use."""

    def __init__(self, arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check the arrays' names, shapes and dtypes; ``shapes``: the expected shapes, by name.

        Raises :class:`TensorNamesError`, :class:`TensorShapeError` or :class:`CheckpointFileError`.
        """
        missing, unexpected = sorted(shapes.keys() - arrays), sorted(arrays.keys() - shapes)
        if missing or unexpected:
            raise TensorNamesError(
                "the parameters are not those of the specification: missing "
                f"{missing[:8] or 'none'}; unexpected {unexpected[:8] or 'none'}",
                missing=missing,
                unexpected=unexpected,
            )
        differing = [
            (name, arrays[name].shape, shape)
            for name, shape in shapes.items()
            if arrays[name].shape != shape
        ]
        if differing:
            listed = "; ".join(
                f"{name} is {list(found)}, expected {list(shape)}"
                for name, found, shape in differing[:8]
            )
            raise TensorShapeError(
                f"{len(differing)} parameters do not have the specification's shape: {listed}",
                mismatched=differing,
            )
        for name, array in arrays.items():
            is_whole = name.endswith(".weight") and f"{name}_scale" in arrays
            allowed = ("int8",) if is_whole else WEIGHT_DTYPES
            if dtype_name(array.dtype) not in allowed:
                raise CheckpointFileError(
                    f"{name} is {dtype_name(array.dtype)}; it must be {' or '.join(allowed)}"
                )
        self._arrays = arrays

    def has(self, name: str) -> bool:
        """Return whether there is a parameter of this name."""
        return name in self._arrays

    def read_one(self, name: str, *, mapped: bool = False, gathered: bool = False) -> Array:
        """Return the array of the parameter ``name``; the other arguments have no effect."""
        del mapped, gathered
        return self._arrays[name]


class LayerReader:
    """Makes a compiled encoder's layers of its parameters; each parameter is read once.

    dtype: ``"float32"`` or ``"bfloat16"``, of all weights that are not int8.
    quantized: make the dense layers of blocks int8: rounded here, or already int8 in the checkpoint
    (``saved``).
    epsilons: by name, the epsilons of norms that differ from the specification's.
    made: the layers that were read, by name.
    """

    def __init__(
        self,
        parameters: Assembly | ParametersInMemory,
        *,
        dtype: str,
        quantized: bool,
        saved: bool,
        epsilons: Mapping[str, float] | None = None,
    ) -> None:
        self._parameters = parameters
        self._epsilons = epsilons or {}
        self.dtype = dtype
        self._num_threads = _native.default_threads()
        self._memory = WeightMemory()
        self._quantized = quantized
        self._saved = saved
        self.made: dict[str, Layer] = {}

    def table(self, name: str) -> Array:
        """Read the embedding table of this name in the reader's dtype."""
        self.made[name] = table = self._array(name, gathered=True)
        return table

    def _array(self, name: str, *, gathered: bool = False) -> Array:
        array = self._parameters.read_one(name, mapped=True, gathered=gathered)
        return np.ascontiguousarray(cast(array, self.dtype))

    def _vector(self, name: str) -> Array:
        array = self._array(name)
        # A mapped vector would keep a page of the file for a few numbers.
        return array if array.flags.writeable else np.array(array)

    def has(self, name: str) -> bool:
        """Return whether there is a parameter of this name."""
        return self._parameters.has(name)

    def norm(self, name: str, spec: NormSpec | None) -> NormWeights | None:
        """Read the norm of this name; None without a specification."""
        if spec is None:
            return None
        spec = replace(spec, epsilon=self._epsilons.get(name, spec.epsilon))
        bias = self._vector(f"{name}.bias") if spec.bias else None
        norm = NormWeights(weight=self._vector(f"{name}.weight"), bias=bias, spec=spec)
        self.made[name] = norm
        return norm

    def dense(self, name: str) -> Dense:
        """Read the dense layer of this name and pack it."""
        bias = self._vector(f"{name}.bias") if self.has(f"{name}.bias") else None
        self.made[name] = layer = self._packed(self._array(f"{name}.weight"), bias)
        return layer

    def block_dense(self, name: str) -> Dense | QuantizedDense:
        """Read and pack a block's dense layer of this name, in int8 if the reader quantizes."""
        if not self._quantized:
            return self.dense(name)
        self.made[name] = layer = self._saved_int8(name) if self._saved else self._rounded(name)
        return layer

    def convolution(self, name: str) -> Convolution:
        """Read the convolution of this name; pack it as a dense layer on neighbours' rows."""
        weight_NDK = self._array(f"{name}.weight")
        weight_NK = weight_NDK.transpose(0, 2, 1).reshape(len(weight_NDK), -1)
        dense = self._packed(weight_NK, self._vector(f"{name}.bias"))
        layer = Convolution(dense=dense, kernel_size=weight_NDK.shape[2])
        self.made[name] = layer
        return layer

    def vocabulary(self, tokens: Array) -> Dense:
        """Pack the output layer over the vocabulary, whose weight is the token table ``tokens``."""
        self.made[OUTPUT] = layer = self._packed(tokens, self._vector(f"{OUTPUT}.bias"))
        return layer

    def _packed(self, weight: Array, bias: Array | None) -> Dense:
        return pack(weight, bias, self._memory.take, num_threads=self._num_threads)

    def _rounded(self, name: str) -> QuantizedDense:
        """Read a weight, rounded to int8 as by :func:`encoder_engine.ops.quantize_weight`."""
        weight = self._array(f"{name}.weight")
        # Rounded to the dtype as the other parameters, and kept in float32.
        bias = self._vector(f"{name}.bias") if self.has(f"{name}.bias") else None
        wide = None if bias is None else cast(bias, "float32")
        width, depth = weight.shape
        rounded = np.empty(weight.shape, dtype=np.int8)
        scales = np.empty(width, dtype=np.float32)
        _native.quantize_weight(
            *(weight.dtype == BFLOAT16, address(weight), width, depth),
            *(address(rounded), address(scales), self._num_threads),
        )
        return self._packed_int8(name, rounded, scales, wide)

    def _saved_int8(self, name: str) -> QuantizedDense:
        scales = self._float32(f"{name}.weight_scale")
        if not bool((scales > 0).all()):
            raise CheckpointFileError(
                f"{name}.weight_scale holds {float(scales.min())}; scales are above zero, the "
                "checkpoint is damaged"
            )
        bias = self._float32(f"{name}.bias") if self.has(f"{name}.bias") else None
        weight = np.ascontiguousarray(self._parameters.read_one(f"{name}.weight", mapped=True))
        return self._packed_int8(name, weight, scales, bias)

    def _packed_int8(
        self, name: str, weight: Array, scales: Array, bias: Array | None
    ) -> QuantizedDense:
        width, depth = weight.shape
        if not 1 <= depth <= MOST_TERMS:
            raise UnsupportedFeatureError(
                f"{name} has {depth} input features; a quantized layer has 1 to {MOST_TERMS}"
            )
        content = self._memory.take(_native.panels_bytes(width, depth))
        _native.pack_weight(address(weight), width, depth, address(content), self._num_threads)
        return QuantizedDense(content=content, scales=scales, bias=bias, depth=depth, width=width)

    def _float32(self, name: str) -> Array:
        """Return a float32 copy of the vector ``name``, so that no file stays mapped for it."""
        return np.array(cast(self._parameters.read_one(name, mapped=True), "float32"), order="C")


Reader = LayerReader | MadeLayers


def arrays_of(layer: Layer) -> dict[str, Array]:
    """Return a layer's arrays by name, packed as the kernels read them."""
    if isinstance(layer, np.ndarray):
        return {"table": layer}
    if isinstance(layer, Convolution):
        layer = layer.dense
    if isinstance(layer, NormWeights):
        found = {"weight": layer.weight}
    elif isinstance(layer, Dense):
        found = {"content": layer.content}
    else:
        found = {"content": layer.content, "scales": layer.scales}
    return found if layer.bias is None else found | {"bias": layer.bias}


def pack(
    weight: Array,
    bias: Array | None,
    memory: Callable[[int], Array] = aligned_bytes,
    num_threads: int | None = None,
) -> Dense:
    """Pack a dense layer's weight [N, K] and bias [N] or None, both float32 or both bfloat16.

    ``memory``: a function from a number of bytes to memory that begins at a cache line.
    """
    width, depth = weight.shape
    content = memory(_native.panels_bytes(width, depth * weight.dtype.itemsize))
    weight = np.ascontiguousarray(weight)
    _native.pack_linear(
        *(weight.dtype == BFLOAT16, address(weight), address(bias), width, depth),
        *(address(content), num_threads or _native.default_threads()),
    )
    return Dense(content=content, bias=bias, dtype=weight.dtype, depth=depth, width=width)
