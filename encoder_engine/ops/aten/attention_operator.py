"""The same attention as one operator, which a trace sees as a whole, and its derivative."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from encoder_engine.kernels.attention.differentiable import Call, Gradients, define_operator
from encoder_engine.ops.aten.attention_groups import add_mask, attend, group_of, joined, mask_of
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

# Scores that backward holds at a time, unless one sequence alone has more.
MOST_SCORES = 2**24


class _Part(NamedTuple):
    """Sequences of one length, n of them, in float32 or wider; key and value for every head."""

    query_nHLD: Tensor
    key_nHLD: Tensor
    value_nHLD: Tensor
    grad_nHLD: Tensor | None
    weights_nHLL: Tensor
    kept_nHLL: Tensor | None  # what each weight is multiplied by; None: nothing is dropped


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    sequences = _sequences(call)
    if call.dropout == 0.0 or not sequences.length_groups:
        query, key, value = call[:3]
        output = attend(query, key, value, sequences, call.terms)
    else:
        # SDPA would not say which weights it dropped.
        mixed = [_drop(p.weights_nHLL, p.kept_nHLL) @ p.value_nHLD for p in _parts(call, sequences)]
        output = joined([_rows(x, call.query_THD) for x in mixed], sequences)
    return output.contiguous(), output.new_empty(0, dtype=torch.float32)


def _backward(grad_output_THD: Tensor, _output: Tensor, _lse: Tensor, call: Call) -> Gradients:
    sequences = _sequences(call)
    found: list[Gradients] = []
    for part in _parts(call, sequences, grad_output_THD):
        query, key, value, grad, weights, kept = part
        assert grad is not None
        grad_weights = _drop(grad @ value.mT, kept)
        delta = (weights * grad_weights).sum(dim=-1, keepdim=True)
        grad_scores = weights * (grad_weights - delta) * call.scale
        grads = (grad_scores @ key, grad_scores.mT @ query, _drop(weights, kept).mT @ grad)
        found.append(
            (
                _rows(grads[0], call.query_THD),
                _rows(grads[1], call.key_TKD),
                _rows(grads[2], call.value_TKD),
            )
        )
    if not found:
        query, key, value = (torch.zeros_like(x).contiguous() for x in call[:3])
        return query, key, value
    query, key, value = (joined(list(x), sequences) for x in zip(*found, strict=True))
    return query, key, value


attend_traced = define_operator("attention_aten", _forward, _backward, keeps_lse=False)


def _sequences(call: Call) -> Sequences:
    (cu_seqlens,) = call.layout
    return _laid_out(cu_seqlens.cpu().numpy().tobytes(), cu_seqlens.device)


@lru_cache(maxsize=8)
def _laid_out(cu_seqlens: bytes, device: torch.device) -> Sequences:
    """Lay sequences out once for all layers of a batch."""
    lengths = np.diff(np.frombuffer(cu_seqlens, dtype=np.int32))
    return Sequences.from_lengths(lengths.tolist(), device=device)


def _parts(call: Call, sequences: Sequences, grad_THD: Tensor | None = None) -> Iterator[_Part]:
    """Compute the weights, few enough at a time; the same for forward and backward."""
    wide = torch.promote_types(call.query_THD.dtype, torch.float32)
    generator = torch.Generator(call.query_THD.device)
    if call.seed is not None:
        generator.manual_seed(int(call.seed))
    tensors = [x for x in (*call[:3], grad_THD) if x is not None]
    for length, _, rows in sequences.length_groups:
        mask = mask_of(length, call.terms, tensors[0].new_empty(0, dtype=wide))
        at_once = max(1, MOST_SCORES // (tensors[0].shape[1] * length**2))
        pieces = (torch.split(group_of(x, rows, length), at_once) for x in tensors)
        for query, key, value, *grads in zip(*pieces, strict=True):
            query, key, value, *grads = (x.to(wide) for x in (query, key, value, *grads))
            key, value = (x.repeat_interleave(call.group, 1) for x in (key, value))
            scores = add_mask(query @ key.mT * call.scale, mask)
            kept = None
            if call.dropout > 0.0:
                drawn = torch.rand(scores.shape, generator=generator, device=scores.device)
                kept = (drawn >= call.dropout).to(wide) / (1.0 - call.dropout)
            grad = grads[0] if grads else None
            yield _Part(query, key, value, grad, torch.softmax(scores, dim=-1), kept)


def _drop(weights: Tensor, kept: Tensor | None) -> Tensor:
    return weights if kept is None else weights * kept


def _rows(x_nHLD: Tensor, like_TKD: Tensor) -> Tensor:
    """Return rows of K heads, [n * L, K, D]; query heads that share one are summed."""
    num_sequences, _, length, head_dim = x_nHLD.shape
    x_nKLD = x_nHLD.reshape(num_sequences, like_TKD.shape[1], -1, length, head_dim).sum(dim=2)
    rows: Tensor = x_nKLD.transpose(1, 2).reshape(-1, *like_TKD.shape[1:])
    return rows.to(like_TKD.dtype)
