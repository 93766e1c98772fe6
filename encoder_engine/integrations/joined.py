"""Layers of ours over parameters of theirs that are not simply shared.

Query, key and value by one product, and tables whose row for padding gets no gradient.

Dimensions: T packed tokens, K features in, N features out, V rows of a table, D its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine import ops

if TYPE_CHECKING:
    from encoder_engine.models.names import Origin

__all__ = ["JoinedLinear", "Neighbours", "PaddedTable", "own_memory"]


class Neighbours:
    """Parameters that lie end to end in memory, and the whole that they make together.

    How it works: a block of memory is filled with the parameters, and each of them gets a tensor
    over its part. On a CPU every part is a storage of its own, as large as the parameter, so that
    whatever saves, pickles or shares the model sees parameters like any others. ``whole`` is one
    more tensor over the same memory. It counts only as long as every parameter lies where it was
    put, which :meth:`current_whole` compares by address.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self._parameters = parameters
        with torch.inference_mode(False), torch.no_grad():
            whole = torch.cat([p.detach() for p in parameters])
            parts = _parts(whole, [len(p) for p in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.data = part
        self._whole = whole
        self._addresses = [p.data_ptr() for p in parameters]

    def current_whole(self, parameters: list[Tensor]) -> Tensor | None:
        """Return the whole, or None where a parameter is another or lies elsewhere by now."""
        in_place = list(map(Tensor.data_ptr, parameters)) == self._addresses
        same = in_place and all(
            p.shape == part.shape and p.dtype == part.dtype and p.is_contiguous()
            for p, part in zip(parameters, self._parameters, strict=True)
        )
        return self._whole if same else None


def _parts(whole: Tensor, lengths: list[int]) -> list[Tensor]:
    """Return tensors over parts of the rows, each with a storage of its own."""
    # As bytes, because NumPy has no bfloat16. The array keeps the memory while any part is in use.
    memory = whole.view(-1).view(torch.uint8).numpy()
    row_shape = whole.shape[1:]
    row_bytes = whole[0].nbytes
    parts, start = [], 0
    for length in lengths:
        part = torch.from_numpy(memory[start : start + length * row_bytes])
        parts.append(part.view(whole.dtype).view(length, *row_shape))
        start += length * row_bytes
    return parts


def can_neighbour(parameters: list[Tensor]) -> bool:
    """Say whether parameters may be laid end to end.

    On a CPU, and where each has its memory to itself: what is part of somebody's buffer, as of an
    optimiser that keeps all weights in one, or shared with other processes, stays where it is.
    """
    first = parameters[0]
    return len(parameters) > 1 and all(
        p.device.type == "cpu"
        and p.dtype == first.dtype
        and 0 < p.nbytes == p.untyped_storage().nbytes()
        and not p.untyped_storage().is_shared()
        for p in parameters
    )


def own_memory(parameters: list[Tensor]) -> None:
    """Give parameters that were laid end to end memory of their own again, bit for bit."""
    with torch.inference_mode(False), torch.no_grad():
        for parameter in parameters:
            parameter.data = parameter.detach().clone()


class JoinedLinear(nn.Module):
    """A dense layer of several of transformers', stacked: query, key and value.

    Without gradients on a CPU the stacked weight is the memory that :class:`Neighbours` has laid
    theirs out in; anywhere else it is joined in each call.
    """

    def __init__(self, layers: tuple[nn.Module, ...], origin: Origin) -> None:
        super().__init__()
        # A tuple: the layers stay transformers' and are no modules of this one.
        self.layers = layers
        self.origin = origin
        self._neighbours: dict[str, Neighbours] = {}
        if not origin.halves_swapped:
            for part in ("weight", "bias"):
                tensors = self._tensors(part)
                if tensors and can_neighbour(tensors):
                    self._neighbours[part] = Neighbours(tensors)

    def forward(self, input_TK: Tensor) -> Tensor:
        """Return [T, N]."""
        weight_NK, bias_N = self._stacked("weight"), self._stacked("bias")
        assert weight_NK is not None
        return ops.linear(input_TK, weight_NK, bias_N)

    def release(self) -> None:
        """Give the layers' parameters memory of their own again."""
        for part in self._neighbours:
            own_memory(self._tensors(part))
        self._neighbours.clear()

    def _tensors(self, part: str) -> list[Tensor]:
        tensors = [getattr(layer, part) for layer in self.layers]
        return [] if tensors[0] is None else tensors

    def _stacked(self, part: str) -> Tensor | None:
        tensors = self._tensors(part)
        if not tensors:
            return None
        neighbours = self._neighbours.get(part)
        wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if neighbours is not None and not wants_gradient:
            whole = neighbours.current_whole(tensors)
            if whole is not None:
                return whole
        return self.origin.join(dict(zip(self.origin.names, tensors, strict=True)))


class PaddedTable(nn.Module):
    """A table of transformers' whose row for padding gets no gradient, as in ``nn.Embedding``."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        # A tuple: the table stays transformers' and is no module of this one.
        self.tables = (table,)

    @property
    def weight(self) -> Tensor:
        """Return the table's weight, [V, D]."""
        table = self.tables[0]
        if not (torch.is_grad_enabled() and table.weight.requires_grad):
            return table.weight
        weight: Tensor = _WithoutRow.apply(table.weight, table.padding_idx)  # type: ignore[no-untyped-call]
        return weight


class _WithoutRow(torch.autograd.Function):
    """A weight as it is; its gradient is zero in one row."""

    @staticmethod
    def forward(weight_VD: Tensor, _: int) -> Tensor:
        return weight_VD.view_as(weight_VD)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], _output: Tensor) -> None:
        ctx.row = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_VD: Tensor) -> tuple[Tensor, None]:
        # A lookup's gradient is made for this alone: it is changed in place, unless that is to be
        # differentiated again.
        if grad_VD.requires_grad or torch.is_grad_enabled():
            grad_VD = grad_VD.clone()
        grad_VD[ctx.row] = 0
        return grad_VD, None
