"""The embedding layer: the normalised sum of token, position and segment embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import (
    CallFacts,
    Operation,
    check_alike,
    check_device,
    check_probability,
    plain,
    residual_dtype,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["embedding"]

# A program holds a whole row in registers.
WIDEST_TRITON = 16384
ID_DTYPES = ("torch.int32", "torch.int64")


@dataclass(frozen=True, kw_only=True)
class EmbeddingFacts(CallFacts):
    """The facts of a call by which an implementation of the embedding layer is chosen.

    ``scaled``: there are factors on the token embeddings.
    ``without``: the names of the arguments that are None, such as ``("norm_bias",)``.
    """

    width: int = 768
    dropout: bool = False
    scaled: bool = False
    without: tuple[str, ...] = ()


def _refuse_triton(facts: EmbeddingFacts) -> str | None:
    if facts.scaled:
        return "it does not implement factors of token rows"
    if "norm" in facts.without:
        return "it does not implement an embedding without norm"
    if facts.width > WIDEST_TRITON:
        return f"its rows are at most {WIDEST_TRITON} wide, these are {facts.width}"
    return gpu.refuse_triton(facts)


_EMBEDDING = Operation(
    "embedding",
    EmbeddingFacts,
    (gpu.triton("embedding", _refuse_triton), cpu.native("embedding"), *plain("embedding")),
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
    token_scale_T: Tensor | None = None,
    dropout: float = 0.0,
    implementation: str | None = None,
) -> Tensor:
    """Compute BERT's embedding layer (Devlin et al. 2019): look-up, sum, layer norm, dropout.

    ``F.dropout(F.layer_norm(token[ids] + position[places] + segment[segments], ...))``

    ``*_ids_T``: int32 or int64 [T]; ``segment_ids_T=None``: segment 0. An id outside its table
    raises ``IndexError`` on a CPU. On a GPU nothing is read back to check ids: ``triton`` reads
    other memory, ``aten`` fails torch's device-side assertion.
    ``token_weight_VE``: [V, E].
    ``position_weight_PE``: [P, E], given with ``position_ids_T``, or None.
    ``segment_weight_SE``: [S, E] or None.
    ``token_scale_T``: factors on the token embeddings before the sum, in float32 (float64 for
    float64), or None; constants without a gradient.
    ``norm_weight_E``, ``norm_bias_E``: [E] or None; without both there is no norm.
    Returns [T, E], under autocast in the residual stream's dtype. Raises :class:`ShapeError`.
    """
    _check_ids({"input": input_ids_T, "position": position_ids_T, "segment": segment_ids_T})
    tables = {
        "token": token_weight_VE,
        "position": position_weight_PE,
        "segment": segment_weight_SE,
    }
    _check_tables(tables)
    width = token_weight_VE.shape[1]
    if (position_weight_PE is None) != (position_ids_T is None):
        raise ShapeError("pass both position_ids and position_weight, or neither")
    if norm_weight_E is None and norm_bias_E is not None:
        raise ShapeError("norm_bias needs norm_weight, which is None")
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
    check_device(
        token_weight_VE,
        input_ids=input_ids_T,
        position_ids=position_ids_T,
        segment_ids=segment_ids_T,
        token_scale=token_scale_T,
    )
    _check_scale(token_scale_T, input_ids_T, token_weight_VE)
    check_probability(dropout)
    tensors = (*tables.values(), norm_weight_E, norm_bias_E)
    given = {"positions": position_weight_PE, "norm": norm_weight_E, "norm_bias": norm_bias_E}
    function = _EMBEDDING.find(
        implementation,
        *tensors,
        width=width,
        dropout=dropout > 0.0,
        scaled=token_scale_T is not None,
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
        token_scale_T=token_scale_T,
        dropout=dropout,
    )
    stream = residual_dtype(result)
    return result if stream is None else result.to(stream)


def _check_scale(scale_T: Tensor | None, input_ids_T: Tensor, weight_VE: Tensor) -> None:
    if scale_T is None:
        return
    wide = "torch.float64" if str(weight_VE.dtype) == "torch.float64" else "torch.float32"
    if scale_T.shape != input_ids_T.shape or str(scale_T.dtype) != wide or scale_T.requires_grad:
        raise ShapeError(
            f"token_scale must be {wide} {list(input_ids_T.shape)} without a gradient, got "
            f"{scale_T.dtype} {list(scale_T.shape)}"
        )


def _check_ids(ids: dict[str, Tensor | None]) -> None:
    shape = None
    for name, ids_T in ids.items():
        if ids_T is None:
            continue
        if ids_T.dim() != 1 or str(ids_T.dtype) not in ID_DTYPES:
            raise ShapeError(
                f"{name}_ids must be torch.int32 or torch.int64 [T], got {ids_T.dtype} "
                f"{list(ids_T.shape)}"
            )
        shape = ids_T.shape if shape is None else shape
        if ids_T.shape != shape:
            raise ShapeError(f"{name}_ids is {list(ids_T.shape)}, input_ids {list(shape)}")


def _check_tables(tables: dict[str, Tensor | None]) -> None:
    width = None
    for name, table in tables.items():
        if table is None:
            continue
        if table.dim() != 2 or table.shape[0] == 0:
            raise ShapeError(
                f"{name} embeddings must be a table of at least one row, got {list(table.shape)}"
            )
        width = table.shape[1] if width is None else width
        if table.shape[1] != width:
            raise ShapeError(f"{name} embeddings have width {table.shape[1]}, tokens {width}")
