"""A batch of packed token ids, validated against an encoder's tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    BatchError,
    SequenceLengthError,
    TokenIdError,
    UnsupportedFeatureError,
)
from encoder_engine.families.facts.spec import MASKED_IN_TRAINING
from encoder_engine.families.facts.unattended import refuse_unattended

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import EmbeddingSpec, EncoderSpec

__all__ = ["Batch", "Rows"]

# Rows of a batch: each text's first token, its last, all before its first separator, those that the
# caller chose, or all.
Rows = Literal["first", "last", "question", "chosen", "all"]


# A shared prefix of fewer tokens, or of a smaller share of a batch, saves less than the copies of
# its keys take.
LEAST_PREFIX, LEAST_SHARE = 4, 0.02


class Keys(NamedTuple):
    """The attention keys of texts with a shared prefix: the prefix's keys, then the text's own.

    tokens: the token of each key, int32 [K].
    starts: each text's first key, int32 [B + 1].
    of_tokens: the key of each token, int32 [T], ascending.
    """

    tokens: Array
    starts: Array
    of_tokens: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A batch of texts as packed token ids, for a program; arrays are contiguous and int32.

    ids, type_ids: token ids and token type ids, [T]; type_ids None: all 0.
    cu_seqlens: the first token of each text, then T: [B + 1].
    unattended: the number of last tokens of each text that no token attends to, [B]; None: 0.
    chosen: indices of the tokens whose hidden states are requested, ascending, [M]; None: all.
    prefix: the length of a prefix that all texts share: the first text is then the prefix alone,
        and the others continue it without repeating it; 0: no shared prefix.

    Properties are computed at each access, which is once per run of a program: in Python 3.11 a
    cached property takes a lock that all batches share, and a forked child may find it locked.
    """

    ids: Array
    cu_seqlens: Array
    type_ids: Array | None
    embedding: EmbeddingSpec
    unattended: Array | None = None
    chosen: Array | None = None
    prefix: int = 0

    @classmethod
    def of(
        cls,
        spec: EncoderSpec,
        ids: Array,
        cu_seqlens: Array,
        type_ids: Array | None,
        unattended: Array | None = None,
        chosen: Array | None = None,
    ) -> Self:
        """Return a batch of these arrays, after checking them against an encoder's specification.

        Raises :class:`BatchError` for arrays of other types or shapes, :class:`TokenIdError` for an
        id outside its table, :class:`SequenceLengthError` for a text that is too long, and
        :class:`UnsupportedFeatureError` for unattended tokens that the encoder cannot compute.
        """
        embedding = spec.embedding
        ids, cu_seqlens = _int32("ids", ids), _int32("cu_seqlens", cu_seqlens)
        # In 64 bits: a difference of 32 bits may wrap.
        lengths = np.diff(cu_seqlens.astype(np.int64))
        if (
            not len(cu_seqlens)
            or cu_seqlens[0]
            or cu_seqlens[-1] != len(ids)
            or (lengths < 0).any()
        ):
            raise BatchError(
                f"cu_seqlens must rise from 0 to the {len(ids)} ids, got "
                f"{cu_seqlens[:4].tolist()} .. {cu_seqlens[-2:].tolist()}"
            )
        _check_range("token id", ids, embedding.vocab_size, cu_seqlens)
        if not embedding.num_segments:
            type_ids = None
        if type_ids is not None:
            type_ids = _int32("type_ids", type_ids)
            if len(type_ids) != len(ids):
                raise BatchError(f"{len(ids)} ids, {len(type_ids)} token type ids")
            _check_range("token type id", type_ids, embedding.num_segments, cu_seqlens)
        longest = spec.max_length
        if longest is not None and len(lengths) and int(lengths.max()) > longest:
            row = int(lengths.argmax())
            raise SequenceLengthError(
                f"row {row} has {int(lengths[row])} tokens, the model takes {longest}; truncate "
                "when tokenizing (max_length) or split the text",
                row=row,
            )
        if unattended is not None:
            unattended = _int32("unattended", unattended)
            _check_unattended(spec, unattended, lengths)
        if chosen is not None:
            chosen = _int32("rows", chosen)
            _check_chosen(chosen, len(ids))
        return cls(
            ids=ids,
            cu_seqlens=cu_seqlens,
            type_ids=type_ids,
            embedding=embedding,
            unattended=unattended,
            chosen=chosen,
        )

    @property
    def num_tokens(self) -> int:
        """The number of tokens, T."""
        return len(self.ids)

    @property
    def num_texts(self) -> int:
        """The number of texts, B."""
        return len(self.cu_seqlens) - 1

    def with_shared_prefix(self) -> Batch:
        """Return the batch with the common prefix of its texts moved into a first text of its own.

        Returns the batch itself if the prefix is short. Only for causal encoders, where the rows of
        a prefix do not depend on what follows.
        """
        starts, lengths = self.cu_seqlens[:-1], np.diff(self.cu_seqlens)
        # A text keeps at least one token, whose row may be asked for.
        most = int(lengths.min(initial=len(self.ids))) - 1
        if self.num_texts < 2 or most < LEAST_PREFIX or self.embedding.positions_skip_padding:
            return self
        prefix = self._common_length(starts, most)
        saved = prefix * (self.num_texts - 1)
        if prefix < LEAST_PREFIX or saved < LEAST_SHARE * len(self.ids):
            return self
        within = np.arange(len(self.ids), dtype=np.int32) - np.repeat(starts, lengths)
        kept = within >= prefix
        kept[:prefix] = True
        cu_seqlens = np.zeros(self.num_texts + 2, dtype=np.int32)
        np.cumsum(np.concatenate([[prefix], lengths - prefix]), out=cu_seqlens[1:])
        types = None if self.type_ids is None else self.type_ids[kept]
        return replace(
            self, ids=self.ids[kept], cu_seqlens=cu_seqlens, type_ids=types, prefix=prefix
        )

    def _common_length(self, starts: Array, most: int) -> int:
        """Return the length of the texts' longest common prefix in tokens, at most ``most``."""
        rows = [self.ids, *([] if self.type_ids is None else [self.type_ids])]
        common = most
        for values in rows:
            first = values[:common]
            for start in starts[1:]:
                differs = values[start : start + common] != first[:common]
                if differs.any():
                    common = int(differs.argmax())
        return common

    @property
    def keys(self) -> Keys | None:
        """The tokens whose keys each text attends to; None without a shared prefix."""
        prefix = np.int32(self.prefix)
        if not prefix:
            return None
        lengths = np.diff(self.cu_seqlens)
        added = np.full(self.num_texts, prefix)
        added[0] = 0
        starts = np.zeros(self.num_texts + 1, dtype=np.int32)
        np.cumsum(lengths + added, out=starts[1:])
        shifts = starts[:-1] + added - self.cu_seqlens[:-1]
        tokens = np.arange(len(self.ids), dtype=np.int32)
        of_tokens = tokens + np.repeat(shifts, lengths)
        key_tokens = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], lengths + added)
        key_tokens[of_tokens] = tokens
        return Keys(key_tokens, starts, of_tokens)

    @property
    def token_scales(self) -> Array:
        """The factor on each token's embedding, float32 [T]; a token dropout (ESM) varies it."""
        spec = self.embedding
        if spec.mask_id is None:
            return np.full(len(self.ids), spec.scale, dtype=np.float32)
        is_mask, lengths = self.ids == spec.mask_id, np.diff(self.cu_seqlens)
        before = np.concatenate([[0], np.cumsum(is_mask)])
        counts = np.diff(before[self.cu_seqlens])
        with np.errstate(divide="ignore"):
            factors = (1.0 - MASKED_IN_TRAINING) / (1.0 - counts / np.maximum(lengths, 1))
        scales = spec.scale * np.repeat(factors, lengths)
        return np.where(is_mask, 0.0, scales).astype(np.float32)

    @property
    def cu_keys(self) -> Array:
        """The offsets of the sequences that tokens attend to, int32.

        One per text, [B + 1]; with unattended tokens two per text, [2 B + 1]: attended, unattended.
        """
        if self.unattended is None:
            return self.cu_seqlens
        starts = np.zeros(2 * self.num_texts + 1, dtype=np.int32)
        starts[2::2] = self.cu_seqlens[1:]
        starts[1::2] = self.cu_seqlens[1:] - self.unattended
        return starts

    @property
    def positions(self) -> Array:
        """The position of each token in its text, int32 [T]."""
        places = np.arange(len(self.ids), dtype=np.int32)
        if self.num_texts > 1:
            places -= np.repeat(self.cu_seqlens[:-1], np.diff(self.cu_seqlens))
        if self.prefix:
            places[self.prefix :] += np.int32(self.prefix)
        return places

    @property
    def position_ids(self) -> Array | None:
        """The row of the position table for each token, int32 [T]; None without a table."""
        spec = self.embedding
        if not spec.num_positions:
            return None
        places = self.positions + np.int32(spec.first_position)
        if not spec.positions_skip_padding:
            return places
        padding = self.ids == spec.padding_id
        if not padding.any():
            return places
        # A padding token within a text takes no position, as in fairseq.
        before = np.concatenate([np.zeros(1, np.int32), np.cumsum(padding, dtype=np.int32)])
        skipped = before[1:] - np.repeat(before[self.cu_seqlens[:-1]], np.diff(self.cu_seqlens))
        return np.where(padding, np.int32(spec.first_position - 1), places - skipped)

    def selected(self, rows: Rows, separator_id: int | None = None) -> tuple[Array, Array]:
        """Return the selected rows, int32 [M], and their offsets by text, int32 [B + 1].

        ``rows``: how they are selected, such as ``"first"`` of each text; for ``"all"`` the offsets
        are by the 2 B sequences of :attr:`cu_keys`. ``separator_id``: the token that ends a
        question.
        """
        lengths = np.diff(self.cu_seqlens)
        if rows == "all":
            # All tokens are queries of their text's attended tokens, none of the unattended ones.
            ends = np.zeros(2 * self.num_texts + 1, dtype=np.int32)
            ends[1::2] = ends[2::2] = self.cu_seqlens[1:]
            return np.arange(self.num_tokens, dtype=np.int32), ends
        if rows == "chosen":
            assert self.chosen is not None
            return self.chosen, np.searchsorted(self.chosen, self.cu_seqlens).astype(np.int32)
        if rows == "question":
            ahead = np.concatenate([[0], np.cumsum(self.ids == separator_id)])
            before = ahead[1:] == np.repeat(ahead[self.cu_seqlens[:-1]], lengths)
            found = np.flatnonzero(before)
            starts = np.searchsorted(found, self.cu_seqlens)
            return found.astype(np.int32), starts.astype(np.int32)
        ends = self.cu_seqlens[:-1] if rows == "first" else self.cu_seqlens[1:] - np.int32(1)
        there = lengths > 0
        starts = np.zeros(len(self.cu_seqlens), dtype=np.int32)
        np.cumsum(there, out=starts[1:])
        return np.ascontiguousarray(ends[there]), starts


def _check_chosen(chosen: Array, num_tokens: int) -> None:
    """Raise :class:`BatchError` unless the rows are tokens of the batch, each once and in order."""
    if len(chosen) and (chosen[0] < 0 or chosen[-1] >= num_tokens or (np.diff(chosen) < 1).any()):
        raise BatchError(
            f"rows must be ascending places among the {num_tokens} tokens, each once, got "
            f"{chosen.tolist()[:8]}"
        )


def _check_unattended(spec: EncoderSpec, unattended: Array, lengths: Array) -> None:
    """Raise an error for counts of unattended tokens that do not fit the texts or the encoder.

    A text of unattended tokens alone has nothing to attend to: its rows would be NaN.
    """
    fits = len(unattended) == len(lengths)
    if not fits or (unattended < 0).any() or (unattended > lengths).any():
        raise BatchError(
            f"unattended must hold a number of tokens for each of the {len(lengths)} texts, got "
            f"{unattended.tolist()[:8]}"
        )
    alone = (unattended == lengths) & (lengths > 0)
    if alone.any():
        row = int(alone.argmax())
        raise BatchError(
            f"no token of row {row} is attended to: all {int(lengths[row])} are unattended; leave "
            "one at least",
            row=row,
        )
    reason = refuse_unattended(spec, int(lengths.max(initial=0)))
    if reason is not None:
        raise UnsupportedFeatureError(reason)


def _int32(name: str, array: Array) -> Array:
    if not isinstance(array, np.ndarray):
        raise BatchError(f"{name} must be an array, got {type(array).__name__}; use np.array")
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise BatchError(
            f"{name} must be a flat array of integers, got {array.dtype} {list(array.shape)}"
        )
    if array.dtype == np.int32 and array.flags.c_contiguous:
        return array
    narrow = array.astype(np.int32)
    if (narrow != array).any():
        raise BatchError(f"{name} holds numbers beyond 32 bits")
    return narrow


def _check_range(what: str, values: Array, limit: int, cu_seqlens: Array) -> None:
    # As unsigned numbers, negative ones are beyond every limit: one comparison instead of two.
    outside = values.view(np.uint32) >= limit
    if outside.any():
        place = int(outside.argmax())
        row = int(np.searchsorted(cu_seqlens, place, side="right")) - 1
        raise TokenIdError(
            f"{what} {int(values[place])} at row {row}, position {place - int(cu_seqlens[row])} "
            f"lies outside 0..{limit - 1}; use the model's own tokenizer",
            row=row,
        )
