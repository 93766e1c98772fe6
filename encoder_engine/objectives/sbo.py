"""The span boundary objective (Joshi et al. 2020): predict a span's tokens from its neighbours.

Dimensions: T tokens, M hidden tokens, S spans, D width, P relative positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.models.init import draw_weights
from encoder_engine.models.linear import Linear
from encoder_engine.models.training_model import IGNORED, LossSum, Padding

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.objectives.objective import CorruptedBatch

__all__ = ["SBO", "SpanBoundary"]


class SpanBoundary(nn.Module):
    """The head of the span boundary objective: two layers ``norm(gelu(W [x_left; x_right; p_i]))``.

    ``longest``: the number of relative positions p. The output weight is the token embeddings, with
    a bias. Raises :class:`ConfigError` for token embeddings of another width than the encoder's.
    """

    def __init__(self, encoder: Encoder, *, longest: int) -> None:
        super().__init__()
        width, tokens = encoder.spec.width, encoder.embedding.tokens.weight
        if tokens.shape[1] != width:
            raise ConfigError(
                f"token embeddings are {tokens.shape[1]} wide, the encoder {width}: the span "
                "boundary objective needs equal widths; leave out objectives.span_boundary"
            )
        self.encoder = encoder
        self.positions = nn.Embedding(longest, width)
        self.first, self.second = Linear(3 * width, width), Linear(width, width)
        self.first_norm, self.second_norm = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(tokens.shape[0]))
        with torch.no_grad():
            for module in (self.positions, self.first, self.second):
                draw_weights(module, encoder.spec.initializer_range)
        for name in ("positions", "first", "second", "first_norm", "second_norm"):
            getattr(self, name).to(device=encoder.device, dtype=encoder.dtype)
        self.bias.data = self.bias.data.to(device=encoder.device, dtype=encoder.dtype)

    def forward(
        self, hidden_TD: Tensor, left_M: Tensor, right_M: Tensor, place_M: Tensor
    ) -> Tensor:
        """Return the predicted hidden state of each masked token, [M, D]."""
        around = [F.embedding(left_M, hidden_TD), F.embedding(right_M, hidden_TD)]
        known = torch.cat([*around, self.positions(place_M)], dim=1)
        for dense, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            known = ops.layer_norm(
                dense(known, gelu="none"), norm.weight, norm.bias, epsilon=norm.eps
            )
        return known


@dataclass(frozen=True, kw_only=True)
class SBO:
    """The span boundary objective: cross-entropy of masked tokens, given both sides of their span.

    Must follow :class:`MLM` with ``unit="span"``, whose spans this objective reads. Adjacent spans
    are merged, so that no neighbour is masked. Tokens of a span beyond ``longest`` are left out.
    Adds the targets ``sbo_left``, ``sbo_right``, ``sbo_places`` and ``sbo_labels`` [M]: the
    neighbours' indices, the token's index in its span, and its id.
    """

    longest: int = 20
    weight: float = 1.0
    name: str = "sbo"
    needs_pooled: bool = False
    row_targets: tuple[str, ...] | None = ("sbo_left", "sbo_right")

    @property
    def paddings(self) -> Mapping[str, Padding] | None:
        """Return the padding of targets for CUDA graphs: indices by 0, labels by an ignored one."""
        return {
            **dict.fromkeys(("sbo_left", "sbo_right", "sbo_places"), Padding(0)),
            "sbo_labels": Padding(IGNORED),
        }

    def corrupt(self, corrupted: CorruptedBatch, _seed: int, /) -> CorruptedBatch:
        """Add as targets the tokens left and right of each masked token's span.

        Raises :class:`ConfigError` without spans.
        """
        spans = corrupted.targets.get("spans")
        if spans is None:
            raise ConfigError("the span boundary objective needs MLM with unit='span' before it")
        spans = _merged(spans)
        kept = np.minimum(spans[:, 1], self.longest)
        starts = np.repeat(spans[:, 0], kept)
        places = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        found = {
            "sbo_left": starts - 1,
            "sbo_right": starts + np.repeat(spans[:, 1], kept),
            "sbo_places": places,
            "sbo_labels": corrupted.clean.input_ids[starts + places].astype(np.int64),
        }
        return replace(corrupted, targets={**corrupted.targets, **found})

    def head(self, encoder: Encoder) -> SpanBoundary:
        """Make the head, with two layers and position embeddings, randomly initialised."""
        return SpanBoundary(encoder, longest=self.longest)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Return the number of masked tokens."""
        return targets["sbo_labels"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Return the cross-entropy summed over the masked tokens."""
        assert isinstance(head, SpanBoundary)
        left_M, right_M, places_M, labels_M = (
            targets[f"sbo_{name}"] for name in ("left", "right", "places", "labels")
        )
        known_MD = head(output.last_hidden_state, left_M, right_M, places_M)
        rows_M = torch.arange(labels_M.shape[0], device=labels_M.device)
        total = ops.masked_cross_entropy(
            *(known_MD, rows_M, labels_M),
            *(head.encoder.embedding.tokens.weight, head.bias),
            reduction="sum",
        )
        return LossSum(total, self.count(targets))


def _merged(spans: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Merge adjacent spans; return first rows and lengths, int64 [S, 2], ascending."""
    starts, lengths = spans.T
    apart = np.ones(len(spans), np.bool_)
    apart[1:] = starts[1:] > starts[:-1] + lengths[:-1]
    groups = np.cumsum(apart) - 1
    sums = np.bincount(groups, weights=lengths).astype(np.int64)
    return np.stack([starts[apart], sums], axis=1)
