"""Disentangled attention (DeBERTa; He et al. 2021) on packed sequences, on a GPU.

DeBERTa-v3-base's sizes: 12 heads of 64, and 256 buckets of distances to either side.
"""

from __future__ import annotations

import functools
import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.cases.training_gpu import mixed_lengths
from benchmarks.jobs.op_case import GPU, Rival, Shape, Work, fixed_shape, op_specs, why_missing
from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts, Disentangled
from encoder_engine.ops.relative_position import log_position_entries
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from benchmarks.measuring.case import CaseSpec

BUCKETS, LONGEST, TOKENS = 256, 512, 16_384
LIBRARY, MODULE = "disentangled-flash", "disentangled_flash"
# Three terms of a score: content to content, content to position, position to content.
SCALE = (3 * 64) ** -0.5


def case_specs() -> list[CaseSpec]:
    """Return forward and training cases, on equal and on mixed lengths."""
    sizes = {"equal": (LONGEST,) * (TOKENS // LONGEST), "mixed": mixed_lengths(LONGEST, TOKENS)}
    return [
        spec
        for kind, lengths in sizes.items()
        for spec in op_specs(
            "attention",
            make_work,
            group="attention_deberta",
            lengths=(kind,),
            shape=partial(fixed_shape, lengths, 12, 64),
            devices=GPU,
        )
    ]


def make_work(shape: Shape) -> Work:
    """Define the case: attend within each sequence, by contents and by relative distances."""
    layout = Sequences.from_lengths(shape.lengths, device=shape.device)
    entries_R = log_position_entries(BUCKETS, LONGEST, device=shape.device)
    own, position = (
        (rows, shape.num_heads, shape.head_dim) for rows in (shape.num_tokens, 2 * BUCKETS)
    )
    scored = sum(length * min(2 * length - 1, 2 * BUCKETS) for length in shape.lengths)
    missing = why_missing(shape.device, MODULE, LIBRARY)
    return Work(
        inputs=shape.inputs(query=own, key=own, value=own, far_key=position, far_query=position),
        ours=partial(_ours, layout, entries_R),
        eager=partial(_eager, layout, entries_R),
        rivals=(
            Rival(
                name=LIBRARY,
                function=_Theirs(layout, shape),
                unavailable=missing,
                libraries=(LIBRARY,),
            ),
        ),
        facts=AttentionFacts(
            device=shape.device,
            dtype=shape.facts.dtype,
            head_dim=shape.head_dim,
            terms=("disentangled",),
        ),
        compilable=False,  # one sequence at a time
        terms=max(shape.head_dim, shape.num_tokens),
        operations=4 * shape.width * (sum(n**2 for n in shape.lengths) + scored),
        # As for attention without positions: the scores are computed again.
        backward_ratio=2.5,
    )


def _ours(layout: Sequences, entries_R: Tensor, by: str, **inputs: Tensor) -> Tensor:
    return ops.attention(
        inputs["query"],
        inputs["key"],
        inputs["value"],
        layout,
        scale=SCALE,
        disentangled=Disentangled(inputs["far_key"], inputs["far_query"], entries_R),
        implementation=by,
    )


def _eager(
    layout: Sequences,
    entries_R: Tensor,
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    far_key: Tensor,
    far_query: Tensor,
) -> Tensor:
    """Compute attention one sequence at a time, as DeBERTa's authors do."""
    lengths = layout.lengths.tolist()
    far_keys, far_queries = (x.permute(1, 2, 0) for x in (far_key, far_query))
    outputs = []
    for parts in zip(*(torch.split(x, lengths) for x in (query, key, value)), strict=True):
        q, k, v = (part.transpose(0, 1) for part in parts)
        places = torch.arange(q.shape[1], device=q.device)
        entry_LL = entries_R[places - places[:, None] + len(entries_R) // 2].expand(len(q), -1, -1)
        scores = q @ k.transpose(1, 2)
        scores = scores + (q @ far_keys).gather(2, entry_LL)
        scores = scores + (k @ far_queries).gather(2, entry_LL.mT).mT
        outputs.append((torch.softmax(SCALE * scores, dim=-1) @ v).transpose(0, 1))
    return torch.cat(outputs)


class _Theirs:
    """The attention of another library; its projections are left out, as in all candidates."""

    def __init__(self, layout: Sequences, shape: Shape) -> None:
        self._layout, self._shape = layout, shape

    @functools.cached_property
    def _attention(self) -> Any:
        reference = importlib.import_module(f"{MODULE}._reference")
        module = importlib.import_module(f"{MODULE}.training.attention")
        config = reference.DebertaAttentionConfig(
            hidden_size=self._shape.width,
            num_attention_heads=self._shape.num_heads,
            attention_probs_dropout_prob=0.0,
            max_relative_positions=LONGEST,
            position_buckets=BUCKETS,
        )
        return module.TritonTrainingDisentangledSelfAttention(config).to(self._shape.device)

    def __call__(self, *, query: Tensor, key: Tensor, value: Tensor, **far: Tensor) -> Tensor:
        def project_positions(_: Tensor, entries: Tensor) -> tuple[Tensor, ...]:
            return tuple(far[n][entries].transpose(0, 1) for n in ("far_key", "far_query"))

        rows = [x.flatten(1) for x in (query, key, value)]
        attention, layout = self._attention, self._layout
        attention._project_qkv = lambda _: rows
        attention._project_active_positions = project_positions
        output, _ = attention.forward_packed(
            rows[0], layout.cu_seqlens, layout.max_seqlen, rel_embeddings=rows[0]
        )
        found: Tensor = output.view(query.shape)
        return found
