"""A linear-chain conditional random field over packed rows (Lafferty et al. 2001).

The score of tags y of n words: ``start[y_1] + sum(emissions[t, y_t]) + sum(transitions[y_t,
y_t+1]) + end[y_n]``, as pytorch-crf defines it. How it works: sequences are sorted by length, and
step t computes the sequences that have a word t, so that there is no padding. Illegal tags and
transitions count as -inf in the normaliser and in Viterbi decoding.

Dimensions: M packed word rows, B sequences, K tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.errors import ShapeError
from encoder_engine.packing.tag_paths import LegalTags, viterbi, word_steps

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.packing import Sequences

__all__ = ["CRF", "LegalTags", "viterbi"]

# The initial weights of pytorch-crf: uniform in [-0.1, 0.1].
_INITIAL_BOUND = 0.1


class CRF(nn.Module):
    """The start, end and transition scores of K tags, and the likelihood of tag sequences.

    ``legal``: tags and transitions that are allowed; None: all.
    """

    legal_start: Tensor
    legal_end: Tensor
    legal_transitions: Tensor

    def __init__(self, num_tags: int, legal: LegalTags | None = None) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.empty(num_tags))
        self.end = nn.Parameter(torch.empty(num_tags))
        # transitions[i, j]: from tag i to tag j.
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for weight in self.parameters():
            nn.init.uniform_(weight, -_INITIAL_BOUND, _INITIAL_BOUND)
        legal = legal or LegalTags.everything(num_tags)
        for name in ("start", "end", "transitions"):
            allowed = torch.from_numpy(np.array(getattr(legal, name)))
            if allowed.shape != getattr(self, name).shape:
                raise ShapeError(
                    f"legal.{name} is {list(allowed.shape)}, {num_tags} tags need "
                    f"{list(getattr(self, name).shape)}"
                )
            self.register_buffer(f"legal_{name}", allowed, persistent=False)

    def scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return start [K], end [K] and transitions [K, K], -inf where illegal."""
        found = [
            weight.masked_fill(~allowed, -torch.inf)
            for weight, allowed in (
                (self.start, self.legal_start),
                (self.end, self.legal_end),
                (self.transitions, self.legal_transitions),
            )
        ]
        return found[0], found[1], found[2]

    def negative_log_likelihood(
        self,
        emissions_MK: Tensor,
        sequences: Sequences,
        tags_M: Tensor,
        *,
        begins: Tensor | None = None,
        ends: Tensor | None = None,
    ) -> Tensor:
        """Return -log p(tags | emissions), summed over the sequences; float32 or wider.

        ``tags_M``: int64 [M].
        ``begins``, ``ends``: bool [B]; False where a sequence is a part of a sentence without the
        sentence's first or last word: any tag may begin or end it, without a score. None: all True.

        The result is inf for illegal tags. Raises :class:`ShapeError` for emissions of other sizes.
        """
        if emissions_MK.shape != (sequences.num_tokens, len(self.start)):
            raise ShapeError(
                f"emissions are {list(emissions_MK.shape)}, {sequences.num_tokens} words and "
                f"{len(self.start)} tags were expected"
            )
        if emissions_MK.dtype in (torch.bfloat16, torch.float16):
            emissions_MK = emissions_MK.float()
        there = np.flatnonzero(sequences.lengths)
        start_K, end_K, transitions_KK = self.scores()
        # The scores of the first and of the last words of the sequences that have any, [N, K].
        start_NK = self._scores_of(start_K, begins, there)
        end_NK = self._scores_of(end_K, ends, there)
        normaliser = _log_partition(emissions_MK, sequences, start_NK, end_NK, transitions_KK)
        return normaliser - _score(
            emissions_MK, sequences, tags_M, start_NK, end_NK, transitions_KK
        )

    @staticmethod
    def _scores_of(score_K: Tensor, wanted: Tensor | None, there: npt.NDArray[np.int64]) -> Tensor:
        """Return ``score_K`` for each of the sequences with the indices ``there``: [N, K].

        ``wanted``: bool [B]; a sequence for which it is False gets zeros. None: all True.
        """
        score_NK = score_K.expand(len(there), -1)
        if wanted is None:
            return score_NK
        kept = wanted[torch.from_numpy(there).to(wanted.device)]
        return torch.where(kept[:, None], score_NK, torch.zeros_like(score_NK))

    @torch.no_grad()
    def decode(self, emissions_MK: Tensor, sequences: Sequences) -> npt.NDArray[np.int64]:
        """Return the highest-scoring tags of each sequence (Viterbi), packed: int64 [M]."""
        start, end, transitions = (score.float().cpu().numpy() for score in self.scores())
        emissions = emissions_MK.float().cpu().numpy()
        return viterbi(emissions, sequences.offsets, start, end, transitions)


def _score(
    emissions_MK: Tensor,
    sequences: Sequences,
    tags_M: Tensor,
    start_NK: Tensor,
    end_NK: Tensor,
    transitions_KK: Tensor,
) -> Tensor:
    """Return the score of the tags ``tags_M``, summed over all sequences."""
    cu_seqlens = sequences.cu_seqlens.long()
    there = cu_seqlens.diff() > 0
    firsts, lasts = cu_seqlens[:-1][there], cu_seqlens[1:][there] - 1
    inner = torch.ones(len(tags_M), dtype=torch.bool, device=tags_M.device)
    inner[firsts] = False
    follows = inner.nonzero().flatten()
    emitted = emissions_MK.gather(1, tags_M[:, None]).sum()
    moved = transitions_KK[tags_M[follows - 1], tags_M[follows]].sum()
    began = start_NK.gather(1, tags_M[firsts][:, None]).sum()
    ended = end_NK.gather(1, tags_M[lasts][:, None]).sum()
    return emitted + moved + began + ended


def _log_partition(
    emissions_MK: Tensor,
    sequences: Sequences,
    start_NK: Tensor,
    end_NK: Tensor,
    transitions_KK: Tensor,
) -> Tensor:
    """Return the logarithm of each sequence's partition function, summed over sequences."""
    device = emissions_MK.device
    lengths = sequences.lengths[sequences.lengths > 0]
    order = torch.from_numpy(np.argsort(-lengths, kind="stable")).to(device)
    finished: list[Tensor] = []
    alpha_NK = emissions_MK.new_zeros(0, emissions_MK.shape[1])
    for step, rows in enumerate(word_steps(sequences.offsets)):
        emitted_NK = emissions_MK[torch.from_numpy(rows).to(device)]
        if step == 0:
            alpha_NK = start_NK[order] + emitted_NK
            continue
        finished.append(alpha_NK[len(rows) :])
        alpha_NK = _logsumexp(alpha_NK[: len(rows), :, None] + transitions_KK) + emitted_NK
    finished.append(alpha_NK)
    # Sequences finish shortest first.
    whole_NK = torch.cat(finished[::-1]) + end_NK[order]
    return _logsumexp(whole_NK[..., None]).sum()


def _logsumexp(values_NIK: Tensor) -> Tensor:
    """Return the logsumexp over the middle axis, with gradient 0 where all values are -inf."""
    highest = values_NIK.detach().amax(1, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    summed = (values_NIK - highest).exp().sum(1)
    dead = summed == 0
    return (summed + dead).log().masked_fill(dead, -torch.inf) + highest.squeeze(1)
