"""Quantization of rows to bytes, with one scale per row, for integer matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu
from encoder_engine.ops.layer_norm import check_norm
from encoder_engine.ops.registry import CallFacts, Operation, plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["layer_norm_quantized", "quantize_rows"]


def _refuse_gradients(facts: CallFacts) -> str | None:
    return "quantization has no gradient" if facts.requires_grad else None


def _quantization(name: str) -> Operation:
    return Operation(
        name,
        CallFacts,
        (cpu.native("quantize", cpu.refuse_native), *plain("quantize", _refuse_gradients)),
    )


_QUANTIZE_ROWS = _quantization("quantize_rows")
_LAYER_NORM_QUANTIZED = _quantization("layer_norm_quantized")


def quantize_rows(input_TD: Tensor, *, implementation: str | None = None) -> tuple[Tensor, Tensor]:
    """Quantize each row to 255 steps between -m and m, m its largest magnitude.

    ``scale = input.abs().amax(1) / 127; (input / scale[:, None]).round() + 128``

    ``input_TD``: [T, D]. Returns uint8 [T, D] with zero point 128, and the scales, float32 [T]:
    ``(quantized.float() - 128) * scale[:, None]`` differs by at most half a scale. A row whose
    magnitudes are all below 2^-100 has scale 1. A row with an infinity or NaN has scale NaN and
    undefined bytes. Raises :class:`ShapeError`, and :class:`ImplementationError` for an input that
    requires a gradient while gradients are enabled: quantization has none.
    """
    if input_TD.dim() != 2:
        raise ShapeError(f"input must be [T, D], got {list(input_TD.shape)}")
    function = _QUANTIZE_ROWS.find(implementation, input_TD)
    quantized_TD, scale_T = function(input_TD)
    return quantized_TD, scale_T


def layer_norm_quantized(
    input_TD: Tensor,
    weight_D: Tensor,
    bias_D: Tensor | None,
    *,
    epsilon: float,
    residual_TD: Tensor | None = None,
    implementation: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise and quantize each row: ``ops.layer_norm``, then :func:`quantize_rows`.

    Arguments are those of ``ops.layer_norm`` without dropout. Returns the norm [T, D] in the
    input's dtype, and its bytes, uint8 [T, D], and scales, float32 [T], quantized before rounding
    to the dtype. Raises as :func:`quantize_rows` does, for each of the tensors.
    """
    check_norm(input_TD, weight_D, bias_D, residual_TD, 0.0)
    tensors = (input_TD, weight_D, bias_D, residual_TD)
    function = _LAYER_NORM_QUANTIZED.find(implementation, *tensors)
    output_TD, quantized_TD, scale_T = function(
        input_TD, weight_D, bias_D, epsilon=epsilon, residual_TD=residual_TD
    )
    return output_TD, quantized_TD, scale_T
