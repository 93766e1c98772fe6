"""Packed attention, each implementation beside PyTorch's own, with padding and without."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.op_case import Rival, Shape, Work, op_specs
from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from benchmarks.case import CaseSpec


def case_specs() -> list[CaseSpec]:
    """Forward and training, on mixed and on equal lengths."""
    return op_specs("attention", make_work, ragged=True)


def make_work(shape: Shape) -> Work:
    """Attend within each sequence; SDPA pays for padding, and for putting it in and out."""
    layout = Sequences.from_lengths(shape.lengths, device=shape.device)
    sizes = (shape.num_tokens, shape.num_heads, shape.head_dim)
    names = ("query", "key", "value")
    return Work(
        inputs={name: shape.draw(*sizes, seed=seed) for seed, name in enumerate(names)},
        ours=partial(_ours, layout),
        eager=partial(_eager, layout),
        rivals=(
            Rival(name="torch sdpa, padded", function=_PaddedSdpa(layout)),
            Rival(
                name="torch varlen_attn",
                function=partial(_varlen, layout),
                unavailable=_why_no_varlen(shape),
            ),
        ),
        facts=AttentionFacts(device=shape.device, dtype=shape.facts.dtype, head_dim=shape.head_dim),
        terms=max(shape.head_dim, *shape.lengths),
    )


def _ours(layout: Sequences, by: str, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return ops.attention(query, key, value, layout, implementation=by)


def _eager(layout: Sequences, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One sequence at a time by matmul and softmax."""
    lengths = layout.lengths.tolist()
    outputs = []
    for parts in zip(*(torch.split(x, lengths) for x in (query, key, value)), strict=True):
        q, k, v = (part.transpose(0, 1) for part in parts)
        weights = torch.softmax(q @ k.transpose(1, 2) * query.shape[-1] ** -0.5, dim=-1)
        outputs.append((weights @ v).transpose(0, 1))
    return torch.cat(outputs)


class _PaddedSdpa:
    """SDPA on [B, H, L, D] with a mask where lengths differ; where rows go is found out once."""

    def __init__(self, layout: Sequences) -> None:
        self._sequences, self._places = layout.sequence_ids, layout.positions
        self._batch, self._longest = len(layout), layout.max_seqlen
        lengths = torch.from_numpy(layout.lengths).to(layout.device)
        real_BL = torch.arange(self._longest, device=layout.device) < lengths[:, None]
        self._mask = None if bool(real_BL.all()) else real_BL[:, None, None, :]

    def __call__(self, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (self._pad(x) for x in (query, key, value))
        output_BHLD = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask)
        if self._mask is None:
            return output_BHLD.transpose(1, 2).reshape(query.shape)
        return output_BHLD.transpose(1, 2)[self._sequences, self._places]

    def _pad(self, x_THD: Tensor) -> Tensor:
        shape = (self._batch, self._longest, *x_THD.shape[1:])
        if self._mask is None:
            return x_THD.view(shape).transpose(1, 2)
        padded_BLHD = x_THD.new_zeros(shape)
        return padded_BLHD.index_put((self._sequences, self._places), x_THD).transpose(1, 2)


def _varlen(layout: Sequences, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    attend = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    ends, longest = layout.cu_seqlens, layout.max_seqlen
    output: Tensor = attend(query, key, value, ends, ends, longest, longest)
    return output


def _why_no_varlen(shape: Shape) -> str | None:
    if shape.device != "cuda":
        return "torch's varlen_attn is for CUDA devices"
    try:
        importlib.import_module("torch.nn.attention.varlen")
    except ImportError:
        return f"torch {torch.__version__} has no varlen_attn"
    return None
