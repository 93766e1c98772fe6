"""The weights of int8 dense layers, in the layouts of CPU kernels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal

import torch

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu
from encoder_engine.ops.registry import CallFacts, check_device

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

__all__ = [
    "MOST_TERMS",
    "Approximation",
    "QuantizedWeight",
    "check_terms",
]

Approximation = Literal["none", "tanh"]
# 131,072 products of a byte less 128 and an int8, up to 128 * 128 each, may overflow int32.
MOST_TERMS = 2**17 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedWeight:
    """A dense layer's weight as int8 [N, K] with one scale per output feature, float32 [N].

    ``content``: the weight in the order in which the kernels of one implementation read it;
    :meth:`unpack` returns int8 [N, K].
    ``bias_N``: float32 [N] or None.
    ``shape``: (N, K).
    ``layout``: that implementation, ``"native"`` or ``"aten"``: the one chosen automatically.
    """

    content: Tensor
    scale_N: Tensor
    bias_N: Tensor | None
    shape: tuple[int, int]
    layout: str

    @classmethod
    def pack(cls, weight_NK: Tensor, scale_N: Tensor, bias_N: Tensor | None) -> QuantizedWeight:
        """Pack an int8 weight [N, K] for the implementation that is chosen automatically.

        ``scale_N``: float32 [N]; ``bias_N``: float32 [N] or None; all on the CPU. Raises
        :class:`ShapeError`, also for a K that is 0 or beyond 131,071.
        """
        _check_integers(weight_NK, scale_N, bias_N)
        layout = _automatic_layout()
        rows, columns = weight_NK.shape
        return cls(
            content=_layout_module(layout).pack(weight_NK),
            scale_N=scale_N,
            bias_N=bias_N,
            shape=(rows, columns),
            layout=layout,
        )

    def unpack(self) -> Tensor:
        """Return the weight as int8, [N, K]."""
        plain: Tensor = _layout_module(self.layout).unpack(self.content, self.shape)
        return plain

    def content_for(self, layout: str) -> Tensor:
        """Return the weight in the layout of an implementation, ``"native"`` or ``"aten"``.

        If it is not the stored one, the weight is packed again at each call.
        """
        if layout == self.layout:
            return self.content
        content: Tensor = _layout_module(layout).pack(self.unpack())
        return content

    def dequantize(self) -> Tensor:
        """Return the weight's values, float32 [N, K]."""
        return self.unpack().float() * self.scale_N[:, None]


def _layout_module(layout: str) -> ModuleType:
    """Return the module of an int8 implementation, with functions that pack and unpack weights."""
    return importlib.import_module(f"encoder_engine.ops.{layout}.quantized_linear")


def _automatic_layout() -> str:
    """Return the int8 implementation that is chosen automatically: ``"native"`` or ``"aten"``."""
    facts = CallFacts()
    native = cpu.refuse_native(facts) is None and cpu.is_automatic(facts)
    return "native" if native else "aten"


def _check_integers(weight_NK: Tensor, scale_N: Tensor, bias_N: Tensor | None) -> None:
    if weight_NK.dim() != 2 or weight_NK.dtype != torch.int8 or weight_NK.device.type != "cpu":
        raise ShapeError(
            f"weight must be torch.int8 [N, K] on the CPU, got {weight_NK.dtype} "
            f"{list(weight_NK.shape)} on {weight_NK.device}"
        )
    check_terms(weight_NK)
    check_device(weight_NK, scale=scale_N, bias=bias_N)
    for name, vector in (("scale", scale_N), ("bias", bias_N)):
        if vector is None:
            continue
        if vector.shape != weight_NK.shape[:1] or vector.dtype != torch.float32:
            raise ShapeError(
                f"{name} must be torch.float32 [{len(weight_NK)}], got {vector.dtype} "
                f"{list(vector.shape)}"
            )


def check_terms(weight_NK: Tensor) -> None:
    """Raise :class:`ShapeError` for a weight without input features, or with too many.

    Too many are those whose int32 sums may overflow.
    """
    terms = weight_NK.shape[1]
    if not 1 <= terms <= MOST_TERMS:
        raise ShapeError(
            f"a quantized weight has 1 to {MOST_TERMS} input features, got {list(weight_NK.shape)}"
        )
