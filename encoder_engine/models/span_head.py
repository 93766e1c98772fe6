"""A head that classifies spans of words (span-based NER), over packed word rows.

A span of words i to j is ``[FFN_s(z_i); FFN_e(z_j); g_ij]``, followed by a dense layer and a
softmax over NULL and the types; g is the mean or the attention-weighted mean of z_i to z_j.

How it works: the dense layer is linear in its three parts, so each is multiplied once a word and
added once a span. The sums of g of width w come from those of width w - 1 (for attention by a
running softmax). Each width is computed for itself: the widest tensor is [M, H], and none is
[spans, width, D]. Spans are ordered by width, then by first word.

Dimensions: M packed word rows, S spans, D width of the encoder, H width of the head, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine.errors import InputError, ShapeError
from encoder_engine.models.init import draw_weights
from encoder_engine.models.linear import Linear
from encoder_engine.packing.spans import SpanList, SpanSummary, list_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.packing import Sequences

__all__ = ["SpanHead", "SpanList", "SpanSummary", "list_spans"]

# The deviation of BERT's initial weights.
_INITIAL_DEVIATION = 0.02


class SpanHead(nn.Module):
    """Scores spans of 1 to ``max_width`` words: logits of NULL (output 0) and of each type.

    ``width``: features of the encoder's output.
    ``num_outputs``: types and NULL.
    ``summary``: g of the module's formula, ``"mean"`` or ``"attention"``.
    ``hidden``: features of the head's own layers.
    Raises :class:`InputError` for values out of range.
    """

    def __init__(
        self,
        width: int,
        num_outputs: int,
        *,
        max_width: int,
        summary: SpanSummary = "mean",
        hidden: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if max_width < 1 or num_outputs < 2:
            raise InputError(
                f"max_width is {max_width} and num_outputs {num_outputs}; spans have at least one "
                "word, and outputs are NULL and at least one type"
            )
        if summary not in ("mean", "attention"):
            raise InputError(f"summary is {summary!r}, expected 'mean' or 'attention'")
        self.max_width, self.dropout = max_width, dropout
        self.summary: SpanSummary = summary
        self.start, self.end = Linear(width, hidden), Linear(width, hidden)
        self.of_start = Linear(hidden, hidden)
        self.of_end = Linear(hidden, hidden, bias=False)
        self.of_summary = Linear(width, hidden, bias=False)
        self.attention = Linear(width, 1) if summary == "attention" else None
        self.output = Linear(hidden, num_outputs)
        with torch.no_grad():
            draw_weights(self, _INITIAL_DEVIATION)

    def forward(self, hidden_MD: Tensor, sequences: Sequences) -> Tensor:
        """Return the logits [S, C] of the spans that :func:`list_spans` lists."""
        if len(hidden_MD) != sequences.num_tokens:
            raise ShapeError(
                f"there are {len(hidden_MD)} word rows, the sequences have {sequences.num_tokens}"
            )
        hidden_MD = self._drop(hidden_MD)
        start_MH = self.of_start(self._drop(F.gelu(self.start(hidden_MD))))
        end_MH = self.of_end(self._drop(F.gelu(self.end(hidden_MD))))
        logits = [start_MH.new_zeros(0, self.output.out_features)]
        for firsts, lasts, summary_NH in self._summaries(hidden_MD, sequences):
            whole_NH = start_MH[firsts] + end_MH[lasts] + summary_NH
            logits.append(self.output(self._drop(F.gelu(whole_NH))))
        return torch.cat(logits)

    def _summaries(
        self, hidden_MD: Tensor, sequences: Sequences
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield, for each width, its spans' first rows [N], last rows [N] and term of g, [N, H].

        The term is the product of g with its part of the dense layer's weight. A mean is computed
        as an attention with all scores 0.
        """
        values_MH = self.of_summary(hidden_MD)
        scores_M1 = values_MH.new_zeros(len(values_MH), 1)
        if self.attention is not None:
            scores_M1 = self.attention(hidden_MD)
        device = hidden_MD.device
        room = sequences.offsets[1:].repeat(sequences.lengths) - np.arange(len(hidden_MD))
        firsts = np.flatnonzero(room >= 1)
        rows = torch.from_numpy(firsts).to(device)
        # The running softmax of FlashAttention: maximum m, sum l and accumulator of each start.
        # Maxima are constants: l and acc shrink by the same factor, and g is their quotient.
        m_N1 = scores_M1.detach()
        l_N1 = (scores_M1 - m_N1).exp()
        acc_NH = l_N1 * values_MH
        yield rows, rows, values_MH
        for width in range(2, self.max_width + 1):
            kept = np.flatnonzero(room[firsts] >= width)
            if not len(kept):
                return
            firsts, keep = firsts[kept], torch.from_numpy(kept).to(device)
            rows = torch.from_numpy(firsts).to(device)
            m_N1, l_N1, acc_NH = m_N1[keep], l_N1[keep], acc_NH[keep]
            added_N1 = scores_M1[rows + width - 1]
            higher_N1 = torch.maximum(m_N1, added_N1.detach())
            shrunk_N1, weight_N1 = (m_N1 - higher_N1).exp(), (added_N1 - higher_N1).exp()
            l_N1 = l_N1 * shrunk_N1 + weight_N1
            acc_NH = acc_NH * shrunk_N1 + weight_N1 * values_MH[rows + width - 1]
            m_N1 = higher_N1
            yield rows, rows + width - 1, acc_NH / l_N1

    def _drop(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, self.dropout) if self.training and self.dropout else hidden
