"""The modules after an encoder or after pooling: dense layers, norms, normalization.

How it works: a :class:`ModuleStack` is data, float32 weights in the order of their application.
``models/module_stack.py`` computes it by PyTorch's functions, ``inference/module_stack.py`` by the
extension, and by the NumPy functions of this file for activations that the extension lacks.

Dimensions: R rows (texts or tokens), K features in, N features out.
"""

from __future__ import annotations

import hashlib
from math import erf, sqrt
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ELEMENTWISE",
    "EMPTY_STACK",
    "SCORE_FUNCTIONS",
    "DenseModule",
    "LayerNormModule",
    "ModuleStack",
    "NormalizeModule",
    "ScoreActivation",
    "StackActivation",
    "StackModule",
]

Array = np.ndarray[Any, np.dtype[np.float32]]
StackActivation = Literal[
    "identity",
    "tanh",
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "leaky_relu",
    "elu",
    "softplus",
    "mish",
    "softsign",
    "hardtanh",
    "relu6",
]
ScoreActivation = StackActivation | Literal["softmax"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseModule:
    """``activation(x @ weight.T + bias)``, and with ``residual`` the sum of that and another term.

    weight_NK, bias_N: float32.
    residual: ``"input"`` adds x; an array [N, K] adds ``x @ residual.T``; None adds nothing.
    """

    weight_NK: Array
    bias_N: Array | None = None
    activation: StackActivation = "identity"
    residual: Literal["input"] | Array | None = None

    @property
    def width(self) -> int:
        """The number of output features, N."""
        return len(self.weight_NK)

    def arrays(self) -> dict[str, Array]:
        """Return the layer's weights by name."""
        found = {"weight": self.weight_NK, "bias": self.bias_N}
        if isinstance(self.residual, np.ndarray):
            found["residual"] = self.residual
        return {name: array for name, array in found.items() if array is not None}

    def __repr__(self) -> str:
        """Describe the layer without its weights."""
        added = "projected" if isinstance(self.residual, np.ndarray) else self.residual
        return f"Dense({list(self.weight_NK.shape)}, {self.activation}, residual={added})"


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNormModule:
    """A layer norm with weight and bias, float32 [K]."""

    weight_K: Array
    bias_K: Array
    epsilon: float = 1e-5

    def arrays(self) -> dict[str, Array]:
        """Return the norm's weight and bias by name."""
        return {"weight": self.weight_K, "bias": self.bias_K}

    def __repr__(self) -> str:
        """Describe the norm without its weights."""
        return f"LayerNorm({len(self.weight_K)}, {self.epsilon})"


@dataclass(frozen=True, kw_only=True)
class NormalizeModule:
    """Divides each row by its Euclidean norm."""

    def arrays(self) -> dict[str, Array]:
        """Return {}: the module has no weights."""
        return {}


StackModule: TypeAlias = DenseModule | LayerNormModule | NormalizeModule


@dataclass(frozen=True)
class ModuleStack:
    """Modules after an encoder or after pooling, in the order in which they are applied."""

    modules: tuple[StackModule, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the stack has any module."""
        return bool(self.modules)

    def width(self, features: int) -> int:
        """Return the number of features after all modules, given rows of ``features``."""
        for module in self.modules:
            features = module.width if isinstance(module, DenseModule) else features
        return features

    def mismatch(self, features: int) -> str | None:
        """Return a message about the first module whose input width does not fit; None: all do.

        ``features``: the width of the rows that the first module gets.
        """
        for place, module in enumerate(self.modules):
            taken = features
            if isinstance(module, DenseModule):
                taken, after = module.weight_NK.shape[1], module.width
            elif isinstance(module, LayerNormModule):
                taken = after = len(module.weight_K)
            else:
                after = features
            if taken != features:
                return f"module {place} ({module!r}) takes {taken} features and gets {features}"
            features = after
        return None

    def join_fingerprint(self, encoder: str) -> str:
        """Return the SHA-256 of an encoder's fingerprint and the modules after it.

        Without modules: ``encoder``, the given fingerprint.
        """
        if not self.modules:
            return encoder
        digest = hashlib.sha256(encoder.encode())
        for module in self.modules:
            digest.update(f"\0{module!r}\0".encode())
            for name, array in sorted(module.arrays().items()):
                digest.update(f"\0{name} {list(array.shape)}\0".encode())
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


EMPTY_STACK = ModuleStack()


def _sigmoid(x: Array) -> Array:
    # exp of a number that is not above 0 cannot overflow.
    small = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return found


def _softplus(x: Array) -> Array:
    found: Array = np.logaddexp(x, np.float32(0))
    return found


def _elu(x: Array) -> Array:
    found: Array = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return found


def _gelu(x: Array) -> Array:
    found: Array = (x / 2 * (1 + np.vectorize(erf, otypes=[np.float64])(x / sqrt(2)))).astype(
        x.dtype
    )
    return found


def _softmax(x_NC: Array) -> Array:
    powers = np.exp(x_NC - x_NC.max(axis=-1, keepdims=True, initial=-np.inf))
    found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


# Activations that the extension lacks, with PyTorch's default parameters.
ELEMENTWISE: Mapping[StackActivation, Callable[[Array], Array]] = {
    "sigmoid": _sigmoid,
    "leaky_relu": lambda x: np.where(x >= 0, x, np.float32(0.01) * x),
    "elu": _elu,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "relu6": lambda x: np.clip(x, 0, 6),
}
# Activations of a few scores, for which NumPy is fast enough.
SCORE_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    str(k): f for k, f in ELEMENTWISE.items()
} | {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "softmax": _softmax,
}
