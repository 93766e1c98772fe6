"""The operations an encoder is made of: one public function each, several implementations.

The functions check their arguments. The implementations are ``triton`` (GPU), ``native`` (C++ on
the CPU), ``aten`` (PyTorch's own) and ``reference`` (slow, float64, plainly written). Each call
uses the first implementation that supports its device, dtype and sizes; :func:`explain` says which
one and why, :func:`use` requests one by name.
"""

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.ops")

from encoder_engine.ops.activation import bias_gelu, geglu, swiglu
from encoder_engine.ops.attention import Disentangled, attention, attention_probabilities
from encoder_engine.ops.attention_statistics import AttentionStatistics, attention_statistics
from encoder_engine.ops.embedding import embedding
from encoder_engine.ops.layer_norm import layer_norm, rms_norm
from encoder_engine.ops.linear import linear
from encoder_engine.ops.masked_projection import (
    MaskedTokenLoss,
    ProjectionMode,
    Reduction,
    Transform,
    masked_cross_entropy,
)
from encoder_engine.ops.pooling import POOLING_MODES, PoolingMode, pooling
from encoder_engine.ops.quantize import layer_norm_quantized, quantize_rows
from encoder_engine.ops.quantized_linear import (
    quantize_weight,
    quantized_linear,
    requantized_linear,
)
from encoder_engine.ops.registry import explain, find_operation, operations, residual, use
from encoder_engine.ops.relative_position import log_position_entries, relative_position_buckets
from encoder_engine.ops.rotary import rotary, rotary_table
from encoder_engine.ops.split_heads import Turn, split_heads
from encoder_engine.ops.weights import Approximation, QuantizedWeight

__all__ = [
    "POOLING_MODES",
    "Approximation",
    "AttentionStatistics",
    "Disentangled",
    "MaskedTokenLoss",
    "PoolingMode",
    "ProjectionMode",
    "QuantizedWeight",
    "Reduction",
    "Transform",
    "Turn",
    "attention",
    "attention_probabilities",
    "attention_statistics",
    "bias_gelu",
    "embedding",
    "explain",
    "find_operation",
    "geglu",
    "layer_norm",
    "layer_norm_quantized",
    "linear",
    "log_position_entries",
    "masked_cross_entropy",
    "operations",
    "pooling",
    "quantize_rows",
    "quantize_weight",
    "quantized_linear",
    "relative_position_buckets",
    "requantized_linear",
    "residual",
    "rms_norm",
    "rotary",
    "rotary_table",
    "split_heads",
    "swiglu",
    "use",
]
