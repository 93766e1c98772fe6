"""A linear-chain conditional random field over packed rows (Lafferty et al. 2001).

The score of tags y of n words: ``start[y_1] + sum(emissions[t, y_t]) + sum(transitions[y_t,
y_t+1]) + end[y_n]``, as pytorch-crf defines it. How it works: sequences are sorted by length, and
step t computes the sequences that have a word t, so that there is no padding. Illegal tags and
transitions count as -inf in the normaliser and in Viterbi decoding.

Dimensions: M packed word rows, B sequences, K tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.packing import Sequences

    BoolArray = npt.NDArray[np.bool_]
    FloatArray = npt.NDArray[np.floating]

__all__ = ["CRF", "LegalTags", "viterbi"]

# The initial weights of pytorch-crf: uniform in [-0.1, 0.1].
_INITIAL_BOUND = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class LegalTags:
    """The tags that may begin and end a row, bool [K], and follow another, bool [K, K]."""

    start: BoolArray
    end: BoolArray
    transitions: BoolArray

    @classmethod
    def everything(cls, num_tags: int) -> Self:
        """Allow all tags everywhere."""
        free = np.ones(num_tags, np.bool_)
        return cls(start=free, end=free, transitions=np.ones((num_tags, num_tags), np.bool_))

    @classmethod
    def bio(cls, tags: Sequence[str]) -> Self:
        """Allow I-type only after B-type or I-type; other tags are free."""
        free = np.ones(len(tags), np.bool_)
        start, transitions = free.copy(), np.ones((len(tags), len(tags)), np.bool_)
        for place, tag in enumerate(tags):
            if tag.startswith("I-"):
                opening = (tag, "B-" + tag[2:])
                start[place] = False
                transitions[:, place] = [other in opening for other in tags]
        return cls(start=start, end=free, transitions=transitions)

    def find_illegal(self, tags: npt.NDArray[np.integer]) -> int | None:
        """Return the place of the first tag of a row that is illegal there, or None."""
        if len(tags) == 0:
            return None
        if not self.start[tags[0]]:
            return 0
        wrong = np.flatnonzero(~self.transitions[tags[:-1], tags[1:]])
        if len(wrong):
            return int(wrong[0]) + 1
        return None if self.end[tags[-1]] else len(tags) - 1


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
        ``begins``, ``ends``: bool [B]; False where a sequence is a part whose first or last word is
        not the sentence's: any tag may stand there, without a score. None: True.

        The result is inf for illegal tags.
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
        """Return ``score_K`` for each sequence, 0 where it is not wanted."""
        score_NK = score_K.expand(len(there), -1)
        if wanted is None:
            return score_NK
        kept = wanted[torch.from_numpy(there).to(wanted.device)]
        return torch.where(kept[:, None], score_NK, torch.zeros_like(score_NK))

    @torch.no_grad()
    def decode(self, emissions_MK: Tensor, sequences: Sequences) -> npt.NDArray[np.int64]:
        """Return the tags of the highest score of each sequence, int64 [M]."""
        start, end, transitions = (score.float().cpu().numpy() for score in self.scores())
        emissions = emissions_MK.float().cpu().numpy()
        return viterbi(emissions, sequences.offsets, start, end, transitions)


def viterbi(
    emissions: FloatArray,
    offsets: npt.NDArray[np.integer],
    start: FloatArray,
    end: FloatArray,
    transitions: FloatArray,
) -> npt.NDArray[np.int64]:
    """Return the tags of the highest score of each sequence, int64 [M]; the first of equals.

    ``emissions`` [M, K]; ``offsets`` [B + 1]: where the sequences begin, and M; ``start``, ``end``
    [K] and ``transitions`` [K, K]: -inf where a tag is illegal.

    Raises :class:`InputError` where no legal tags have a score above -inf.
    """
    steps = list(_steps(offsets))
    tags = np.zeros(len(emissions), np.int64)
    if not steps:
        return tags
    best = (emissions[steps[0]] + start).astype(np.float64)
    pointers: list[npt.NDArray[np.int64]] = []
    finals = [best]
    for rows in steps[1:]:
        ways = finals[-1][: len(rows), :, None] + transitions
        pointers.append(ways.argmax(1))
        finals.append(ways.max(1) + emissions[rows])
    # Backwards: a sequence joins at its last word, and then follows the pointers.
    current = np.zeros(0, np.int64)
    for step in reversed(range(len(steps))):
        rows = steps[step]
        if step + 1 < len(steps):
            current = pointers[step][np.arange(len(current)), current]
        ending = finals[step][len(current) :] + end
        if len(ending) and not (ending.max(1) > -np.inf).all():
            raise InputError(
                "no legal tags have a score above -inf; the scores are not finite, or the "
                "constraints allow no tags"
            )
        current = np.concatenate([current, ending.argmax(1)])
        tags[rows] = current
    return tags


def _score(
    emissions_MK: Tensor,
    sequences: Sequences,
    tags_M: Tensor,
    start_NK: Tensor,
    end_NK: Tensor,
    transitions_KK: Tensor,
) -> Tensor:
    """Return the summed scores of all sequences' tags."""
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
    """Return the log of the summed exponentials of all tags' scores, over the sequences."""
    device = emissions_MK.device
    lengths = sequences.lengths[sequences.lengths > 0]
    order = torch.from_numpy(np.argsort(-lengths, kind="stable")).to(device)
    finished: list[Tensor] = []
    alpha_NK = emissions_MK.new_zeros(0, emissions_MK.shape[1])
    for step, rows in enumerate(_steps(sequences.offsets)):
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


def _steps(offsets: npt.NDArray[np.integer]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of word 0, 1, ... of all sequences that have it, longest sequences first."""
    lengths = np.diff(offsets).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][order].astype(np.int64), lengths[order]
    for step in range(int(lengths.max(initial=0))):
        num_there = int(np.searchsorted(-lengths, -step, side="left"))
        yield starts[:num_there] + np.int64(step)


def _logsumexp(values_NIK: Tensor) -> Tensor:
    """Return the logsumexp over the middle axis, with gradient 0 where all values are -inf."""
    highest = values_NIK.detach().amax(1, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    summed = (values_NIK - highest).exp().sum(1)
    dead = summed == 0
    return (summed + dead).log().masked_fill(dead, -torch.inf) + highest.squeeze(1)
