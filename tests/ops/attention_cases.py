"""What attention may be asked for, and the plain PyTorch each is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tests.ops.cases import rows as draw_rows

if TYPE_CHECKING:
    from encoder_engine.packing import Sequences


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """Sizes and terms of one call."""

    num_heads: int = 2
    head_dim: int = 16
    group: int = 1
    scale: float | None = None
    window: int | None = None
    causal: bool = False
    slopes: bool = False

    @property
    def terms(self) -> tuple[str, ...]:
        """Name the terms as the operation's facts do."""
        given = {"window": self.window is not None, "causal": self.causal}
        given["alibi_slopes"] = self.slopes
        return tuple(name for name, there in given.items() if there)

    def inputs(self, num_tokens: int, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
        """Draw query, key and value."""
        heads = {"query": self.num_heads}
        heads |= dict.fromkeys(("key", "value"), self.num_heads // self.group)
        return {
            name: draw_rows(num_tokens, num, self.head_dim, seed=seed, dtype=dtype, device=device)
            for seed, (name, num) in enumerate(heads.items())
        }

    def arguments(self, dtype: torch.dtype, device: str) -> dict[str, Any]:
        """Name what the operation is asked for besides query, key and value."""
        given: dict[str, Any] = {"scale": self.scale, "window": self.window, "causal": self.causal}
        if self.slopes:
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            given["alibi_slopes_H"] = torch.linspace(
                0.5, 0.03, self.num_heads, dtype=wide, device=device
            )
        return given

    def probabilities(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the weights of one sequence, [H, L, L], computed in the inputs' dtype."""
        length = len(query)
        key = key.repeat_interleave(self.group, dim=1)
        scale = self.head_dim**-0.5 if self.scale is None else self.scale
        score = query.transpose(0, 1) @ key.permute(1, 2, 0) * scale
        places = torch.arange(length, device=query.device)
        distance = places[None, :] - places[:, None]
        if self.slopes:
            slopes = self.arguments(query.dtype, str(query.device))["alibi_slopes_H"]
            score = score - slopes.to(score.dtype)[:, None, None] * distance.abs()
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            seen &= distance.abs() <= self.window
        if self.causal:
            seen &= distance <= 0
        return torch.softmax(score.masked_fill(~seen, -torch.inf), dim=-1)

    def eager(self, query: Tensor, key: Tensor, value: Tensor, layout: Sequences) -> Tensor:
        """Attend one sequence at a time by matmul and softmax, in the inputs' dtype."""
        parts = [query[:0] + key[:0].sum() + value[:0].sum()]
        for start, stop in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
            weights = self.probabilities(query[start:stop], key[start:stop])
            values = value[start:stop].repeat_interleave(self.group, dim=1)
            parts.append((weights @ values.transpose(0, 1)).transpose(0, 1))
        return torch.cat(parts)


PLAIN = {
    "one head": AttentionCase(num_heads=1, head_dim=64),
    "three heads": AttentionCase(num_heads=3, head_dim=32, scale=0.3),
    "five odd heads": AttentionCase(num_heads=5, head_dim=24),
}
TERMS = {
    "grouped heads": AttentionCase(num_heads=4, group=2),
    "one key head": AttentionCase(num_heads=3, group=3),
    "window": AttentionCase(window=3),
    "window wider than the text": AttentionCase(window=1000),
    "window of nothing but the row": AttentionCase(window=0),
    "causal": AttentionCase(causal=True),
    "slopes": AttentionCase(slopes=True),
    "all": AttentionCase(num_heads=4, group=2, window=9, causal=True, slopes=True),
}
