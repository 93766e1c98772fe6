"""The sum of token, position and segment embeddings, normalised: the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import (
    Facts,
    Implementation,
    Operation,
    check_alike,
    check_probability,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["embedding"]

# A program holds a whole row in registers.
WIDEST_TRITON = 16384


@dataclass(frozen=True, kw_only=True)
class EmbeddingFacts(Facts):
    """What the embedding layer is chosen by.

    ``without`` names what the call leaves out, as its arguments are named: ``("norm_bias",)``.
    """

    width: int = 768
    dropout: bool = False
    without: tuple[str, ...] = ()


def _refuse_triton(facts: EmbeddingFacts) -> str | None:
    if "norm" in facts.without:
        return "it has no embedding without norm"
    if facts.width > WIDEST_TRITON:
        return f"its rows are at most {WIDEST_TRITON} wide, these are {facts.width}"
    return gpu.refuse_triton(facts)


def _refuse_native(facts: EmbeddingFacts) -> str | None:
    if "norm" in facts.without:
        return "it has no embedding without norm"
    return "it drops nothing out" if facts.dropout else cpu.refuse_native(facts)


_EMBEDDING = Operation(
    "embedding",
    EmbeddingFacts,
    (
        Implementation(
            name="triton",
            module="encoder_engine.kernels.embedding.operator",
            refuse=_refuse_triton,
            unasked=gpu.on_its_own,
        ),
        Implementation(
            name="native",
            module="encoder_engine.ops.native.embedding",
            refuse=_refuse_native,
            unasked=cpu.on_its_own,
        ),
        Implementation(name="aten", module="encoder_engine.ops.aten.embedding"),
        Implementation(name="reference", module="encoder_engine.kernels.embedding.reference"),
    ),
)


def embedding(
    input_ids_T: Tensor,
    position_ids_T: Tensor | None,
    segment_ids_T: Tensor | None,
    *,
    token_weight_VE: Tensor,
    position_weight_PE: Tensor | None,
    segment_weight_SE: Tensor | None,
    norm_weight_E: Tensor | None,
    norm_bias_E: Tensor | None,
    epsilon: float,
    dropout: float = 0.0,
    implementation: str | None = None,
) -> Tensor:
    """Look up, add, normalise and drop out, as BERT's embedding layer does (Devlin et al. 2019).

    ``F.dropout(F.layer_norm(token[ids] + position[places] + segment[segments], ...))``

    ``*_ids_T``: int32 or int64 [T], known to be in range; ``segment_ids_T`` None means segment 0
    throughout. Tables: [V, E], [P, E] or None, with ``position_ids_T`` or without, [S, E] or None.
    ``norm_weight_E``, ``norm_bias_E``: [E]; without either nothing is normalised. Returns [T, E].
    Raises :class:`ShapeError`.
    """
    width = token_weight_VE.shape[-1]
    for name, table in (("position", position_weight_PE), ("segment", segment_weight_SE)):
        if table is not None and table.shape[-1] != width:
            raise ShapeError(f"{name} embeddings have width {table.shape[-1]}, tokens {width}")
    for name, ids in (("position_ids", position_ids_T), ("segment_ids", segment_ids_T)):
        if ids is not None and ids.shape != input_ids_T.shape:
            raise ShapeError(f"{name} is {list(ids.shape)}, input_ids {list(input_ids_T.shape)}")
    if (position_weight_PE is None) != (position_ids_T is None):
        raise ShapeError("position_ids and position_weight come together, or neither does")
    if norm_weight_E is None and norm_bias_E is not None:
        raise ShapeError("a norm has a weight before it has a bias; norm_weight is None")
    for name, vector in (("norm weight", norm_weight_E), ("norm bias", norm_bias_E)):
        if vector is not None and vector.shape != (width,):
            raise ShapeError(f"{name} is {list(vector.shape)}, the embeddings are {width} wide")
    check_alike(
        token_weight_VE,
        position_weight=position_weight_PE,
        segment_weight=segment_weight_SE,
        norm_weight=norm_weight_E,
        norm_bias=norm_bias_E,
    )
    check_probability(dropout)
    tables = (token_weight_VE, position_weight_PE, segment_weight_SE)
    tensors = (*tables, norm_weight_E, norm_bias_E)
    given = {"positions": position_weight_PE, "norm": norm_weight_E, "norm_bias": norm_bias_E}
    function = _EMBEDDING.find(
        implementation,
        *tensors,
        width=width,
        dropout=dropout > 0.0,
        without=tuple(name for name, tensor in given.items() if tensor is None),
    )
    result: Tensor = function(
        input_ids_T,
        position_ids_T,
        segment_ids_T,
        token_weight_VE=token_weight_VE,
        position_weight_PE=position_weight_PE,
        segment_weight_SE=segment_weight_SE,
        norm_weight_E=norm_weight_E,
        norm_bias_E=norm_bias_E,
        epsilon=epsilon,
        dropout=dropout,
    )
    return result
