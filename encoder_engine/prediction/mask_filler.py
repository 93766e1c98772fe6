"""Fills masks and scores texts with a masked language model.

A text is scored by copies of it in which tokens are masked, one copy for each token. The last block
and the head compute only the predicted row of each copy.

Dimensions: C copies, V vocabulary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from encoder_engine.engine.choosing import EngineRequest, engine_of, load_model
from encoder_engine.engine.outputs import Logits
from encoder_engine.engine.protocol import OutOfDeviceMemoryError
from encoder_engine.errors import (
    DeviceMemoryError,
    InputError,
    NonFiniteVectorError,
    RowError,
    TextError,
)
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.kinds.texts import open_texts
from encoder_engine.kinds.windows import located_error
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.text import Tokenizer
from encoder_engine.text.arguments import check_integer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    import numpy.typing as npt
    import torch

    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import MaskedLM

    Ids = list[int]
    Logs = npt.NDArray[np.float64]

__all__ = ["Filling", "MaskCandidate", "MaskFiller", "TargetScore", "TextScore"]

BATCH_TOKENS = 8192


class MaskCandidate(NamedTuple):
    """A token for one mask, with its probability while the text's other masks are not filled."""

    token: str
    token_id: int
    probability: float


class Filling(NamedTuple):
    """Tokens for all masks of a text, the log of their joint probability, and the filled text."""

    tokens: tuple[str, ...]
    log_probability: float
    text: str


class TargetScore(NamedTuple):
    """A target word for a mask, its subword tokens, and the log of their joint probability."""

    target: str
    pieces: tuple[str, ...]
    log_probability: float


class TextScore(NamedTuple):
    """The pseudo-log-likelihood of a text.

    ``tokens``, ``log_probabilities``: those of the text, without special tokens;
    ``log_probabilities`` float64 [n].
    """

    tokens: tuple[str, ...]
    log_probabilities: npt.NDArray[np.float64]

    @property
    def log_likelihood(self) -> float:
        """The sum of the log probabilities of the text's tokens."""
        return float(self.log_probabilities.sum())

    @property
    def pseudo_perplexity(self) -> float:
        """``exp(-log_likelihood / tokens)`` (Salazar et al. 2020); NaN without a token."""
        if not len(self.tokens):
            return math.nan
        return math.exp(-self.log_likelihood / len(self.tokens))


class _Copy(NamedTuple):
    """A text's token ids with masks, the position to predict, and the index of the text."""

    ids: Ids
    place: int
    row: int = 0


class MaskFiller:
    """A masked language model with its tokenizer.

    ``model``, ``engine``: by default the compiled engine on a CPU, without PyTorch; otherwise a
    PyTorch module. Raises :class:`InputError` for a tokenizer without a mask token.
    """

    def __init__(self, model: CompiledEncoder | MaskedLM, tokenizer: Tokenizer) -> None:
        self.model: Any = model
        self.engine = engine_of(model)
        self.tokenizer = tokenizer.fitted_to(self.engine.spec.embedding.vocab_size)
        if tokenizer.mask_token_id is None:
            raise InputError("the tokenizer names no mask token: its model fills no masks")
        self._mask = tokenizer.mask_token_id

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        tokenizer: Tokenizer | None = None,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a checkpoint with a head for masked tokens.

        tokenizer: replaces the directory's.

        ``quantization="int8"`` rounds the blocks' dense layers, not the head, on a CPU. Other
        options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        directory = resolve_directory(path_or_hub_id, **hub)
        tokenizer = tokenizer or Tokenizer.from_pretrained(directory)
        return cls(load_model(directory, request, "masked-lm"), tokenizer)

    def fill(self, texts: str | Iterable[str], *, top_k: int = 5) -> Any:
        """Return the ``top_k`` tokens for each mask of each text, most probable first.

        Returns a list for each text, or one list for a single ``str``. Masks are filled
        independently. Raises :class:`InputError` for a text without a mask, and for ``top_k`` below
        1.
        """
        check_integer(top_k, "top_k", least=1)
        opened = open_texts(texts)
        rows = [self.masked_ids(text, row) for row, text in enumerate(opened.rows)]
        found = self.fill_rows(rows, top_k)
        return found[0] if opened.single else found

    def fill_rows(
        self, rows: Sequence[Ids], top_k: int, targets: Ids | None = None
    ) -> list[list[list[MaskCandidate]]]:
        """Return the ``top_k`` tokens for each mask of each row of token ids.

        targets: the ids of the tokens to choose from, ascending; None: all tokens.
        """
        copies = [
            _Copy(ids, place, row) for row, ids in enumerate(rows) for place in self._masks(ids)
        ]
        best = iter(
            [
                self._best(log_probabilities_V, top_k, targets)
                for log_probabilities_V in self._log_softmaxes(copies)
            ]
        )
        return [[next(best) for _ in self._masks(ids)] for ids in rows]

    def fill_jointly(self, texts: str | Iterable[str], *, top_k: int = 5) -> Any:
        """Return the ``top_k`` joint fillings of all masks of each text, most probable first.

        Returns a list for each text, or one list for a single ``str``. Masks are filled from left
        to right by beam search with ``top_k`` beams; each mask is predicted with the earlier ones
        filled in. Raises :class:`InputError` as :meth:`fill`.
        """
        check_integer(top_k, "top_k", least=1)
        opened = open_texts(texts)
        rows = [self.masked_ids(text, row) for row, text in enumerate(opened.rows)]
        found = [self._beam(ids, top_k, row) for row, ids in enumerate(rows)]
        return found[0] if opened.single else found

    def _beam(self, ids: Ids, top_k: int, number: int) -> list[Filling]:
        beams = [(ids, 0.0)]
        masks = self._masks(ids)
        for place in masks:
            rows_V = list(self._log_softmaxes([_Copy(row, place, number) for row, _ in beams]))
            grown = [
                ([*row[:place], one.token_id, *row[place + 1 :]], log + math.log(one.probability))
                for (row, log), log_probabilities_V in zip(beams, rows_V, strict=True)
                for one in self._best(log_probabilities_V, top_k)
                if one.probability > 0.0
            ]
            beams = sorted(grown, key=lambda beam: -beam[1])[:top_k]
        return [
            Filling(tuple(self._token(row[p]) for p in masks), log, self.tokenizer.decode(row))
            for row, log in beams
        ]

    def rank(self, text: str, targets: Iterable[str]) -> list[TargetScore]:
        """Rank target words for a text's only mask, most probable first.

        A target of n pieces takes n masks, and its pieces are predicted from left to right. Targets
        of different lengths are compared by the probability of all pieces. Raises
        :class:`InputError` for a text with another number of masks, and for no target.
        """
        targets = list(open_texts(targets).rows)
        if not targets:
            raise InputError("targets is empty; give the words to rank")
        ids = self.masked_ids(text, 0)
        masks = self._masks(ids)
        if len(masks) != 1:
            raise InputError(f"the text has {len(masks)} masks; ranking targets needs exactly one")
        place = masks[0]
        pieces = [self.tokenizer.encode(t, add_special_tokens=False).tolist() for t in targets]
        copies, wanted = [], []
        for target, parts in zip(targets, pieces, strict=True):
            if not parts:
                raise InputError(f"the target {target!r} has no token")
            for number, part in enumerate(parts):
                middle = [*parts[:number], *[self._mask] * (len(parts) - number)]
                row = [*ids[:place], *middle, *ids[place + 1 :]]
                self._check_length(len(row), f"the text with the target {target!r}")
                copies.append(_Copy(row, place + number))
                wanted.append(part)
        logs = self._log_probabilities(copies, wanted)
        sums = np.split(logs, np.cumsum([len(parts) for parts in pieces])[:-1])
        found = [
            TargetScore(target, tuple(self._token(p) for p in parts), float(log.sum()))
            for target, parts, log in zip(targets, pieces, sums, strict=True)
        ]
        return sorted(found, key=lambda one: -one.log_probability)

    def score(self, texts: str | Iterable[str], *, within_words: bool = True) -> Any:
        """Return the pseudo-log-likelihood (:class:`TextScore`) of each text, or of one ``str``.

        within_words: mask a token together with the later pieces of its word (Kauf & Ivanova 2023).
            False: mask the token alone (Salazar et al. 2020), which makes rare words of many pieces
            too likely.
        Raises :class:`RowError` for a text with more tokens than the model supports.
        """
        opened = open_texts(texts)
        encoding = self.tokenizer.encode_batch(list(opened.rows), return_offsets=True)
        offsets = encoding.cu_seqlens.tolist()
        words = np.asarray(encoding.word_ids)
        rows: list[tuple[Ids, list[int]]] = []
        wanted: Ids = []
        counts: list[int] = []
        for row in range(len(encoding)):
            start, stop = offsets[row], offsets[row + 1]
            self._check_length(stop - start, f"text {row}", row)
            ids, owners = encoding.ids[start:stop].tolist(), words[start:stop].tolist()
            rows.append((ids, owners))
            tokens = [token for token, owner in zip(ids, owners, strict=True) if owner >= 0]
            counts.append(len(tokens))
            wanted += tokens
        logs = self._log_probabilities(self._masked_copies(rows, within_words), wanted)
        ends = np.cumsum([0, *counts])
        scores = [
            TextScore(
                tuple(self._token(token) for token in wanted[first:last]), logs[first:last].copy()
            )
            for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ]
        return scores[0] if opened.single else scores

    def _masked_copies(
        self, rows: Sequence[tuple[Ids, list[int]]], within_words: bool
    ) -> Iterator[_Copy]:
        """Yield, for each token of each row that belongs to a word, a copy with this token masked.

        rows: token ids, and the word index of each. Copies are made one by one, because the copies
        of a text of n tokens have n^2 tokens together. ``within_words``: see :meth:`score`.
        """
        for row, (ids, owners) in enumerate(rows):
            for place, owner in enumerate(owners):
                if owner < 0:
                    continue
                masked = list(ids)
                masked[place] = self._mask
                later = place + 1
                while within_words and later < len(ids) and owners[later] == owner:
                    masked[later] = self._mask
                    later += 1
                yield _Copy(masked, place, row)

    def masked_ids(self, text: str, row: int, max_length: int | None = None) -> Ids:
        """Return the token ids of a text that has a mask, truncated to ``max_length`` tokens.

        ``row``: the index of the text, for messages.
        Raises :class:`InputError` for a text without a mask, and :class:`RowError` for a text with
        more tokens than the model supports.
        """
        try:
            ids: Ids = self.tokenizer.encode_batch([text], max_length=max_length).ids.tolist()
        except TextError as error:
            raise located_error(error, [text], row) from None
        if self._mask not in ids:
            raise InputError(
                f"text {row} has no {self._token(self._mask)}; put it where a token is to be "
                "predicted",
                row=row,
            )
        self._check_length(len(ids), f"text {row}", row)
        return ids

    def _check_length(self, length: int, noun: str, row: int | None = None) -> None:
        longest = self.engine.spec.max_length
        if longest is not None and length > longest:
            found = f"has {length} tokens, the model takes {longest}; shorten or split it"
            raise RowError(f"{noun} {found}", row=row, reason=f"the text {found}")

    def _masks(self, ids: Ids) -> list[int]:
        return [place for place, token in enumerate(ids) if token == self._mask]

    def _token(self, token_id: int) -> str:
        return self.tokenizer.id_to_token(token_id) or ""

    def _best(
        self, log_probabilities_V: Logs, top_k: int, targets: Ids | None = None
    ) -> list[MaskCandidate]:
        """Return the ``top_k`` most probable tokens; of equal ones those with the lowest ids.

        targets: the ids of the tokens to choose from, ascending; None: all.
        """
        logs = log_probabilities_V if targets is None else log_probabilities_V[targets]
        top_k = min(top_k, len(logs))
        least = np.partition(logs, -top_k)[-top_k]
        there = np.flatnonzero(logs >= least)
        best = there[np.argsort(-logs[there], kind="stable")][:top_k]
        if targets is not None:
            best = np.array(targets)[best]
        return [
            MaskCandidate(self._token(token), token, math.exp(log_probabilities_V[token]))
            for token in best.tolist()
        ]

    def _log_probabilities(self, copies: Iterable[_Copy], wanted: Ids) -> Logs:
        rows_V = self._log_softmaxes(copies)
        logs = [float(row_V[token]) for row_V, token in zip(rows_V, wanted, strict=True)]
        return np.array(logs, np.float64)

    def _log_softmaxes(self, copies: Iterable[_Copy]) -> Iterator[Logs]:
        """Yield the log softmax [V] at the predicted position of each copy, in order.

        Raises :class:`NonFiniteVectorError` where the model computes NaN or infinity, and
        :class:`DeviceMemoryError` if a single copy exceeds the memory.
        """
        for part in _parts(copies):
            order = iter(part)
            for logits_CV in self._logits(part):
                for logits_V, copy in zip(logits_CV, order, strict=False):
                    shifted_V = logits_V.astype(np.float64) - logits_V.max()
                    found_V = shifted_V - math.log(np.exp(shifted_V).sum())
                    if np.isnan(found_V).any():
                        raise NonFiniteVectorError(
                            f"the model computed NaN or infinity for text {copy.row}; load it in "
                            "float32, or train it again if it diverged",
                            rows=[copy.row],
                        )
                    yield found_V

    def _logits(self, part: list[_Copy]) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the logits [C, V] at the predicted positions, in as few parts as fit in memory."""
        starts_C = np.cumsum([0, *(len(copy.ids) for copy in part)], dtype=np.int32)
        rows = TokenRows(
            ids=np.concatenate([np.array(copy.ids, np.int32) for copy in part]),
            cu_seqlens=starts_C,
        )
        places_C = np.array([copy.place for copy in part], np.int32)
        try:
            (found_CV,) = self.engine.run(rows, Logits(chosen=starts_C[:-1] + places_C))
        except OutOfDeviceMemoryError as error:
            if len(part) == 1:
                raise DeviceMemoryError(
                    f"a text of {len(part[0].ids)} tokens alone exceeds the memory of "
                    f"{self.engine.device}; shorten it, or choose another device",
                    row=part[0].row,
                ) from error
        else:
            yield found_CV
            return
        half = len(part) // 2
        yield from self._logits(part[:half])
        yield from self._logits(part[half:])


def _parts(copies: Iterable[_Copy]) -> Iterator[list[_Copy]]:
    """Group masked copies, in order, into batches of up to ``BATCH_TOKENS`` tokens."""
    part: list[_Copy] = []
    tokens = 0
    for copy in copies:
        if part and tokens + len(copy.ids) > BATCH_TOKENS:
            yield part
            part, tokens = [], 0
        part.append(copy)
        tokens += len(copy.ids)
    if part:
        yield part
