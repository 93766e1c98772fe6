"""What attention may be asked for, and the plain PyTorch each is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.packing import SelectedRows
from tests.ops.cases import rows as draw_rows

if TYPE_CHECKING:
    from encoder_engine.packing import Sequences
    from tests.ops.compare import Function


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """Sizes and terms of one call; of the packed rows, every nth is a query or global.

    ``num_unattended``: the trailing rows of each sequence that are keys of none, or None.
    ``num_buckets``: entries that far distances share, as in DeBERTa; None: one for each distance.
    """

    num_heads: int = 2
    head_dim: int = 16
    group: int = 1
    scale: float | None = None
    window: int | None = None
    causal: bool = False
    slopes: bool = False
    bias_reach: int | None = None
    nth_is_query: int | None = None
    nth_is_global: int | None = None
    reach_of_vectors: int | None = None
    num_buckets: int | None = None
    num_unattended: tuple[int, ...] | None = None

    @property
    def terms(self) -> tuple[str, ...]:
        """Name the terms as the operation's facts do."""
        given = {
            "window": self.window is not None,
            "causal": self.causal,
            "alibi_slopes": self.slopes,
            "relative_bias": self.bias_reach is not None,
            "query_rows": self.nth_is_query is not None or self.num_unattended is not None,
            "global_rows": self.nth_is_global is not None,
            "disentangled": self.reach_of_vectors is not None,
        }
        return tuple(name for name, there in given.items() if there)

    def inputs(self, num_tokens: int, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
        """Draw what gets gradients: query, key, value, bias and vectors of distances."""
        num_queries = len(self.rows(num_tokens, self.nth_is_query or 1))
        heads = (self.num_heads, self.num_heads // self.group)
        shapes = {
            "query": (num_queries, heads[0], self.head_dim),
            "key": (num_tokens, heads[1], self.head_dim),
            "value": (num_tokens, heads[1], self.head_dim),
        }
        if self.bias_reach is not None:
            shapes["bias"] = (heads[0], 2 * self.bias_reach + 1, 1)
        if self.reach_of_vectors is not None:
            vectors = (2 * (self.num_buckets or self.reach_of_vectors), heads[0], self.head_dim)
            shapes |= {"to_query": vectors, "to_key": vectors}
        drawn = {
            name: draw_rows(*shape, seed=seed, dtype=dtype, device=device)
            for seed, (name, shape) in enumerate(shapes.items())
        }
        if self.bias_reach is not None:
            drawn["bias"] = drawn["bias"][..., 0].contiguous()
        return drawn

    @staticmethod
    def rows(num_tokens: int, nth: int) -> Tensor:
        """List every nth of the rows, from the middle of the first n on."""
        return torch.arange(num_tokens)[nth // 2 :: nth]

    def slope_values(self, dtype: torch.dtype, device: torch.device | str) -> Tensor:
        """Return the slopes, in float32 or wider."""
        wide = torch.promote_types(dtype, torch.float32)
        return torch.linspace(0.5, 0.03, self.num_heads, dtype=wide, device=device)

    def arguments(self, layout: Sequences, dtype: torch.dtype) -> dict[str, Any]:
        """Name what the operation is asked for besides what gets gradients."""
        given: dict[str, Any] = {"scale": self.scale, "window": self.window, "causal": self.causal}
        if self.slopes:
            given["alibi_slopes_H"] = self.slope_values(dtype, layout.device)
        nths = {"query_rows": self.nth_is_query, "global_rows": self.nth_is_global}
        for name, nth in nths.items():
            if nth is not None:
                rows = self.rows(layout.num_tokens, nth).to(layout.device)
                given[name] = SelectedRows(rows, layout)
        if self.num_unattended is not None:
            given["query_rows"] = SelectedRows.of_unattended(layout, self.num_unattended)
        return given

    def attend(self, layout: Sequences, dtype: torch.dtype, implementation: str | None) -> Function:
        """Return the operation as a function of what gets gradients."""
        arguments = self.arguments(layout, dtype)
        if self.num_unattended is not None:
            layout = arguments["query_rows"].sequences

        def run(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            bias: Tensor | None = None,
            to_query: Tensor | None = None,
            to_key: Tensor | None = None,
        ) -> Tensor:
            return ops.attention(
                query,
                key,
                value,
                layout,
                relative_bias_HR=bias,
                disentangled=self.disentangled(to_query, to_key),
                implementation=implementation,
                **arguments,
            )

        return run

    def disentangled(
        self, to_query: Tensor | None, to_key: Tensor | None
    ) -> ops.Disentangled | None:
        """Say which vector stands for which distance."""
        if to_query is None or self.reach_of_vectors is None:
            return None
        entries = ops.log_position_entries(
            self.num_buckets, self.reach_of_vectors, device=to_query.device
        )
        return ops.Disentangled(to_query, to_key, entries)

    def probabilities(
        self,
        query: Tensor,
        key: Tensor,
        start: int,
        bias: Tensor | None = None,
        to_query: Tensor | None = None,
        to_key: Tensor | None = None,
        *,
        num_unattended: int = 0,
    ) -> Tensor:
        """Return the weights of the sequence that begins at a row, [H, L, L], in their dtype."""
        key = key.repeat_interleave(self.group, dim=1)
        scale = self.head_dim**-0.5 if self.scale is None else self.scale
        score = query.transpose(0, 1) @ key.permute(1, 2, 0) * scale
        places = torch.arange(len(key), device=query.device)
        distance = places[None, :] - places[:, None]
        if self.slopes:
            slopes = self.slope_values(query.dtype, query.device).to(query.dtype)
            score = score - slopes[:, None, None] * distance.abs()
        if bias is not None:
            assert self.bias_reach is not None
            entry = distance.clamp(-self.bias_reach, self.bias_reach) + self.bias_reach
            score = score + bias[:, entry]
        said = self.disentangled(to_query, to_key)
        if said is not None and to_query is not None and to_key is not None:
            reach = len(said.entries_R) // 2
            entry = said.entries_R[distance.clamp(-reach, reach) + reach]
            score = score + scale * torch.einsum("qhd,qkhd->hqk", query, to_query[entry])
            score = score + scale * torch.einsum("khd,qkhd->hqk", key, to_key[entry])
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            seen &= distance.abs() <= self.window
        if self.nth_is_global is not None:
            everywhere = (places + start - self.nth_is_global // 2) % self.nth_is_global == 0
            seen |= everywhere[None, :] | everywhere[:, None]
        if self.causal:
            seen &= distance <= 0
        seen &= places < len(key) - num_unattended
        return torch.softmax(score.masked_fill(~seen, -torch.inf), dim=-1)

    def eager(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        to_query: Tensor | None = None,
        to_key: Tensor | None = None,
        *,
        layout: Sequences,
    ) -> Tensor:
        """Attend one sequence at a time by matmul and softmax, in the inputs' dtype."""
        rows = self.rows(layout.num_tokens, self.nth_is_query or 1).to(query.device)
        everywhere = query.new_zeros(layout.num_tokens, *query.shape[1:])
        query = everywhere.index_copy(0, rows, query)
        learned = [x for x in (key, value, bias, to_query, to_key) if x is not None]
        nothing = sum(x[:0].sum() for x in learned)
        parts = [query[:0] + nothing]
        unattended = self.num_unattended or (0,) * len(layout.lengths)
        ends = layout.offsets.tolist()
        for start, stop, trailing in zip(ends[:-1], ends[1:], unattended, strict=True):
            here = (query[start:stop], key[start:stop], start)
            weights = self.probabilities(*here, bias, to_query, to_key, num_unattended=trailing)
            values = value[start:stop].repeat_interleave(self.group, dim=1)
            parts.append((weights @ values.transpose(0, 1)).transpose(0, 1))
        return torch.cat(parts)[rows]


PLAIN = {
    "one head": AttentionCase(num_heads=1, head_dim=64),
    "three heads": AttentionCase(num_heads=3, head_dim=32, scale=0.3),
    "five odd heads": AttentionCase(num_heads=5, head_dim=24),
}
TERMS = {
    "grouped heads": AttentionCase(num_heads=4, group=2),
    "one key head": AttentionCase(num_heads=3, group=3),
    "wide heads": AttentionCase(num_heads=1, head_dim=200),
    "widest heads": AttentionCase(num_heads=1, head_dim=256, bias_reach=4, nth_is_query=2),
    "window": AttentionCase(window=3),
    "window wider than the text": AttentionCase(window=1000),
    "window of nothing but the row": AttentionCase(window=0),
    "causal": AttentionCase(causal=True),
    "slopes": AttentionCase(slopes=True),
    "bias": AttentionCase(bias_reach=5),
    "bias wider than the text": AttentionCase(bias_reach=100),
    "bias of three": AttentionCase(num_heads=1, bias_reach=1, window=40),
    "few queries": AttentionCase(nth_is_query=7),
    "many queries": AttentionCase(nth_is_query=2, window=9, bias_reach=40),
    "causal queries": AttentionCase(nth_is_query=3, causal=True, slopes=True, group=2),
    "global rows": AttentionCase(window=3, nth_is_global=11),
    "global queries": AttentionCase(window=0, nth_is_global=2, nth_is_query=3, slopes=True),
    "all at once": AttentionCase(
        num_heads=4, group=2, window=9, causal=True, slopes=True, bias_reach=6, nth_is_query=2
    ),
}
