"""Computes by PyTorch what follows the encoder: module stacks, mixed layers, pooled vectors.

A module stack is the sequence of dense and norm modules that sentence-transformers puts last.

T packed tokens, B sequences, D features; R rows, K features in, N features out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.packing import SelectedRows, Sequences
from encoder_engine.packing.module_stack import DenseModule, LayerNormModule
from encoder_engine.packing.pooling_modes import pool_modes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.models.network import EncoderOutput
    from encoder_engine.packing.module_stack import Array, ModuleStack, StackActivation
    from encoder_engine.packing.pooling_modes import PoolingMode

__all__ = ["StackComputer", "mix_layers", "normalize", "pool", "pooled_rows"]

_ACTIVATIONS: dict[StackActivation, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "mish": F.mish,
    "softsign": F.softsign,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
}


class StackComputer:
    """Computes module stacks; keeps their weights on the rows' device and in the rows' dtype."""

    def __init__(self) -> None:
        # By the id of the array, and the dtype.
        self._weights: dict[tuple[int, torch.dtype], tuple[Array, Tensor]] = {}

    def __call__(self, stack: ModuleStack, rows_RK: Tensor) -> Tensor:
        """Apply all modules of a stack to rows, one after another; return [R, N]."""
        for module in stack.modules:
            if isinstance(module, DenseModule):
                rows_RK = self._dense(module, rows_RK)
            elif isinstance(module, LayerNormModule):
                weight_K, bias_K = (self._like(rows_RK, w) for w in module.arrays().values())
                shape = rows_RK.shape[1:]
                rows_RK = F.layer_norm(rows_RK, shape, weight_K, bias_K, module.epsilon)
            else:
                rows_RK = F.normalize(rows_RK, dim=-1)
        return rows_RK

    def _dense(self, module: DenseModule, x_RK: Tensor) -> Tensor:
        weights = {name: self._like(x_RK, array) for name, array in module.arrays().items()}
        raised_RN = ops.linear(x_RK, weights["weight"], weights.get("bias"))
        raised_RN = _ACTIVATIONS[module.activation](raised_RN)
        if module.residual is None:
            return raised_RN
        projection = weights.get("residual")
        return raised_RN + (x_RK if projection is None else ops.linear(x_RK, projection))

    def _like(self, rows: Tensor, array: Array) -> Tensor:
        kept = self._weights.get((id(array), rows.dtype))
        if kept is None or kept[1].device != rows.device:
            # The array is kept too, so that no other one gets its id.
            kept = (array, torch.from_numpy(array).to(rows.device, rows.dtype))
            self._weights[id(array), rows.dtype] = kept
        return kept[1]


def mix_layers(output: EncoderOutput, layers: tuple[tuple[int, float], ...]) -> Tensor:
    """Return a weighted sum of hidden states, float32 [T, D]; ``layers``: (index, weight) pairs."""
    assert output.hidden_states is not None
    mixed: Any = 0.0
    for layer, weight in layers:
        mixed = mixed + weight * output.hidden_states[layer].float()
    hidden_TD: Tensor = mixed
    return hidden_TD


def pooled_rows(sequences: Sequences, mode: PoolingMode) -> SelectedRows:
    """Return the single row of each sequence that a pooling mode reads: the first or the last."""
    offsets = sequences.offsets
    rows = offsets[:-1] if mode == "cls" else offsets[1:] - 1
    return SelectedRows(torch.from_numpy(rows.astype("int64")).to(sequences.device), sequences)


def pool(
    hidden_TD: Tensor,
    sequences: Sequences,
    modes: tuple[PoolingMode, ...],
    *,
    num_prompt_tokens: int = 0,
    normalized: bool = False,
) -> Tensor:
    """Pool each sequence by every mode and concatenate the results: float32 [B, D * len(modes)].

    num_prompt_tokens: the number of leading tokens, those of a prompt, to leave out of each
        sequence; ``weightedmean`` still counts positions from the start.
    normalized: divide by the Euclidean norm.
    """
    hidden_TD = hidden_TD.float()
    if len(modes) == 1 and not num_prompt_tokens:
        return ops.pooling(hidden_TD, sequences, mode=modes[0], normalize=normalized)
    if num_prompt_tokens:
        lengths = sequences.lengths - num_prompt_tokens
        assert (lengths > 0).all(), "a sequence is nothing but its prompt"
        kept = sequences.positions >= num_prompt_tokens
        hidden_TD = hidden_TD[kept]
        sequences = Sequences.from_lengths(lengths.tolist(), device=hidden_TD.device)
    lengths_B1 = torch.from_numpy(sequences.lengths).to(hidden_TD)[:, None]
    reduce = partial(_reduce, hidden_TD, sequences)
    pooled_BD = torch.cat(pool_modes(reduce, modes, lengths_B1, num_prompt_tokens), dim=-1)
    return normalize(pooled_BD) if normalized else pooled_BD


def _reduce(hidden_TD: Tensor, sequences: Sequences, mode: PoolingMode) -> Tensor:
    return ops.pooling(hidden_TD, sequences, mode=mode)


def normalize(vectors_BD: Tensor) -> Tensor:
    """Divide each row by its Euclidean norm, at least 1e-12: ``F.normalize(vectors, dim=-1)``."""
    return F.normalize(vectors_BD, dim=-1)
