"""Packed attention, each implementation against PyTorch's own, with padding and without."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.jobs.op_case import GPU, Rival, Shape, Work, fixed_shape, op_specs
from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts, equal_length_of
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.case import CaseSpec

WINDOW = 64
# BERT's own; what is timed with it is judged without, since no two drop the same.
DROPOUT = 0.1
# From 1 to 1,024 in even steps: padded to the longest, half of a batch is padding.
HALF_PADDING = tuple(round(1 + 1023 * step / 31) for step in range(32))
# On a GPU, (lengths, heads, head size, rows to either side that are seen or None). The truth keeps
# every score in float64, which limits their number.
GPU_SIZES = {
    "attention_2k": ((2048,) * 16, 16, 64, None),
    "attention_8k": ((8192,), 16, 64, None),
    "attention_8k_window": ((8192,), 16, 64, WINDOW),
    "attention_d128": ((2048,) * 16, 8, 128, None),
    "attention_half": (HALF_PADDING, 16, 64, None),
}


def case_specs() -> list[CaseSpec]:
    """Return forward and training cases, on mixed and equal lengths; on a GPU on long ones too."""
    specs = op_specs("attention", make_work, lengths=("mixed", "equal"))
    for group, (lengths, heads, head_dim, window) in GPU_SIZES.items():
        specs += op_specs(
            "attention",
            partial(make_work, window=window),
            group=group,
            lengths=("equal" if len(set(lengths)) == 1 else "mixed",),
            shape=partial(fixed_shape, lengths, heads, head_dim),
            devices=GPU,
        )
    # Nothing drops in inference.
    return specs + op_specs(
        "attention",
        partial(make_work, dropout=DROPOUT),
        group="attention_dropout",
        modes=("training",),
        lengths=("equal",),
        shape=partial(fixed_shape, (512,) * 128, 16, 64),
        devices=GPU,
    )


def make_work(shape: Shape, *, window: int | None = None, dropout: float = 0.0) -> Work:
    """Define the case: attend within each sequence.

    SDPA, a peer, computes padding, and its time includes adding and removing the padding.
    """
    layout = Sequences.from_lengths(shape.lengths, device=shape.device)
    size = (shape.num_tokens, shape.num_heads, shape.head_dim)
    pairs = sum(_seen_pairs(length, window) for length in shape.lengths)

    def ours(by: str, dropout: float = 0.0, **inputs: Tensor) -> Tensor:
        return ops.attention(
            inputs["query"],
            inputs["key"],
            inputs["value"],
            layout,
            window=window,
            dropout=dropout,
            implementation=by,
        )

    eager = partial(_eager, layout, window)
    inputs = shape.inputs(query=size, key=size, value=size)
    return Work(
        inputs=inputs,
        ours=ours,
        eager=eager,
        timed=partial(ours, dropout=dropout) if dropout else None,
        eager_timed=partial(eager, dropout=dropout) if dropout else None,
        rivals=tuple(_rivals(layout, shape, window, dropout)),
        facts=AttentionFacts(
            device=shape.device,
            dtype=shape.facts.dtype,
            head_dim=shape.head_dim,
            terms=() if window is None else ("window",),
            dropout=dropout > 0.0,
            equal_length=equal_length_of(inputs["query"], layout),
        ),
        compilable=False,  # one sequence at a time
        terms=max(shape.head_dim, *shape.lengths),
        operations=4 * pairs * shape.width,
        # Flash attention computes the scores again.
        backward_ratio=2.5,
    )


def _seen_pairs(length: int, window: int | None) -> int:
    """Count the pairs of a query and a key at most ``window`` tokens from it."""
    if window is None or window >= length:
        return length**2
    return length * (2 * window + 1) - window * (window + 1)


def _eager(
    layout: Sequences,
    window: int | None,
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """Compute attention one sequence at a time, by matmul and softmax."""
    lengths = layout.lengths.tolist()
    outputs = []
    for parts in zip(*(torch.split(x, lengths) for x in (query, key, value)), strict=True):
        q, k, v = (part.transpose(0, 1) for part in parts)
        scores = q @ k.transpose(1, 2) * query.shape[-1] ** -0.5
        if window is not None:
            places = torch.arange(q.shape[1], device=q.device)
            far = (places[:, None] - places).abs() > window
            scores = scores.masked_fill(far, float("-inf"))
        weights = F.dropout(torch.softmax(scores, dim=-1), dropout)
        outputs.append((weights @ v).transpose(0, 1))
    return torch.cat(outputs)


def _rivals(layout: Sequences, shape: Shape, window: int | None, dropout: float) -> Iterator[Rival]:
    off_gpu = None if shape.device == "cuda" else "for CUDA devices"
    if window is None:
        padded = _PaddedSdpa(layout)
        dropping = _PaddedSdpa(layout, dropout) if dropout else None
        yield Rival(name="torch sdpa, padded", function=padded, timed=dropping)
        yield Rival(
            name="torch sdpa cudnn, padded",
            function=partial(_by_cudnn, padded),
            timed=None if dropping is None else partial(_by_cudnn, dropping),
            unavailable=off_gpu,
        )
    if dropout:
        # Neither of the others drops.
        return
    if window is None:
        cudnn = partial(packed_cudnn, layout)
        yield Rival(name="torch cudnn, packed", function=cudnn, unavailable=off_gpu)
    varlen = partial(_varlen, layout, window)
    yield Rival(name="torch varlen_attn", function=varlen, unavailable=off_gpu)


class _PaddedSdpa:
    """SDPA on [B, H, L, D], with a mask if lengths differ; mask and places are computed once."""

    def __init__(self, layout: Sequences, dropout: float = 0.0) -> None:
        self._dropout = dropout
        self._sequences, self._places = layout.sequence_ids, layout.positions
        self._batch, self._longest = len(layout), layout.max_seqlen
        lengths = torch.from_numpy(layout.lengths).to(layout.device)
        real_BL = torch.arange(self._longest, device=layout.device) < lengths[:, None]
        self._mask = None if bool(real_BL.all()) else real_BL[:, None, None, :]

    def __call__(self, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (self._pad(x) for x in (query, key, value))
        output_BHLD = F.scaled_dot_product_attention(
            q, k, v, attn_mask=self._mask, dropout_p=self._dropout
        )
        if self._mask is None:
            return output_BHLD.transpose(1, 2).reshape(query.shape)
        return output_BHLD.transpose(1, 2)[self._sequences, self._places]

    def _pad(self, x_THD: Tensor) -> Tensor:
        shape = (self._batch, self._longest, *x_THD.shape[1:])
        if self._mask is None:
            return x_THD.view(shape).transpose(1, 2)
        padded_BLHD = x_THD.new_zeros(shape)
        return padded_BLHD.index_put((self._sequences, self._places), x_THD).transpose(1, 2)


def _by_cudnn(padded: _PaddedSdpa, **inputs: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return padded(**inputs)


def packed_cudnn(layout: Sequences, *, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend by cuDNN's kernels over packed sequences, with the usual scale, on a CUDA device."""
    found: Tensor = _PackedCudnn.apply(  # type: ignore[no-untyped-call]
        query, key, value, layout.cu_seqlens, layout.max_seqlen
    )
    return found


class _PackedCudnn(torch.autograd.Function):
    """The autograd function of cuDNN's packed attention; torch has no backward for it."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int
    ) -> Tensor:
        output, logsumexp, *_, seed, offset, _ = torch.ops.aten._cudnn_attention_forward(
            query,
            key,
            value,
            None,
            ends,
            ends,
            longest,
            longest,
            compute_log_sumexp=any(ctx.needs_input_grad),
        )
        ctx.save_for_backward(query, key, value, output, logsumexp, seed, offset, ends)
        ctx.longest = longest
        return output  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        *saved, ends = ctx.saved_tensors
        found = torch.ops.aten._cudnn_attention_backward(
            gradient.contiguous(),
            *saved,
            None,
            ends,
            ends,
            ctx.longest,
            ctx.longest,
            dropout_p=0.0,
            is_causal=False,
        )
        return *found, None, None


def _varlen(
    layout: Sequences, window: int | None, *, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    ends, longest = layout.cu_seqlens, layout.max_seqlen
    side = -1 if window is None else window
    output = varlen_attn(query, key, value, ends, ends, longest, longest, window_size=(side, side))
    assert isinstance(output, Tensor)
    return output
