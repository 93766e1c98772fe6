"""Weights of dense layers in the layouts of CPU kernels: packed, and quantized to int8."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu
from encoder_engine.ops.registry import Facts, check_device

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

__all__ = [
    "MOST_TERMS",
    "Approximation",
    "PackedWeight",
    "QuantizedWeight",
    "check_terms",
    "layout_module",
]

Approximation = Literal["none", "tanh"]
# Of more products of a byte and an int8, int32 may not hold the sum.
MOST_TERMS = 2**17 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedWeight:
    """A dense layer's weight [N, K] as matrix products here read it, and its bias [N] or None.

    ``content`` is laid out for the implementation that runs unasked and takes the plain weight's
    memory; :meth:`unpack` gives that back bit for bit.
    """

    content: Tensor
    bias_N: Tensor | None
    shape: tuple[int, int]
    dtype: torch.dtype
    layout: str

    def unpack(self) -> Tensor:
        """Return the plain weight, [N, K]."""
        plain: Tensor = layout_module(self.layout, "packed_linear").unpack(
            self.content, self.shape, self.dtype
        )
        return plain

    def content_for(self, layout: str) -> Tensor:
        """Return the content in a layout; one that is not its own is made for each call."""
        if layout == self.layout:
            return self.content
        content: Tensor = layout_module(layout, "packed_linear").pack(self.unpack(), self.bias_N)
        return content


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedWeight:
    """A dense layer's weight as int8 [N, K] with a scale for each feature out, float32 [N].

    ``content`` is laid out for the implementation that runs unasked; :meth:`unpack` gives int8
    [N, K] back. ``bias_N``: float32 [N] or None.
    """

    content: Tensor
    scale_N: Tensor
    bias_N: Tensor | None
    shape: tuple[int, int]
    layout: str

    @classmethod
    def pack(cls, weight_NK: Tensor, scale_N: Tensor, bias_N: Tensor | None) -> QuantizedWeight:
        """Lay an int8 weight [N, K] out; its bytes are kept, not doubled.

        ``scale_N``: float32 [N]; ``bias_N``: float32 [N] or None; all on the CPU. Raises
        :class:`ShapeError`, also for a K that is 0 or beyond 131,071.
        """
        _check_integers(weight_NK, scale_N, bias_N)
        layout = _layout_unasked()
        rows, columns = weight_NK.shape
        return cls(
            content=layout_module(layout, "quantized_linear").pack(weight_NK),
            scale_N=scale_N,
            bias_N=bias_N,
            shape=(rows, columns),
            layout=layout,
        )

    def unpack(self) -> Tensor:
        """Return the weight as int8, [N, K]."""
        plain: Tensor = layout_module(self.layout, "quantized_linear").unpack(
            self.content, self.shape
        )
        return plain

    def content_for(self, layout: str) -> Tensor:
        """Return the content in a layout; one that is not its own is made for each call."""
        if layout == self.layout:
            return self.content
        content: Tensor = layout_module(layout, "quantized_linear").pack(self.unpack())
        return content

    def dequantize(self) -> Tensor:
        """Return what the integers stand for, float32 [N, K]."""
        return self.unpack().float() * self.scale_N[:, None]


def layout_module(layout: str, operation: str) -> ModuleType:
    """Import the module of an implementation that lays weights of an operation out."""
    return importlib.import_module(f"encoder_engine.ops.{layout}.{operation}")


def _layout_unasked() -> str:
    """Name the layout of the implementation that multiplies int8 unless another is asked for."""
    facts = Facts()
    native = cpu.refuse_native(facts) is None and cpu.on_its_own(facts)
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
    """Raise :class:`ShapeError` where int32 may not hold a sum of so many products."""
    terms = weight_NK.shape[1]
    if not 1 <= terms <= MOST_TERMS:
        raise ShapeError(
            f"a quantized weight has 1 to {MOST_TERMS} features in, got {list(weight_NK.shape)}"
        )
