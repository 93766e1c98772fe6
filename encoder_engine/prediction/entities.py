"""Finds entities in raw texts, as character ranges, from the logits of tokens.

How it works: a text is tokenized directly, without being split into words first. A text beyond
the model's limit is read in windows that overlap, each token in the window that has the most tokens
on both sides of it. The aggregation says whether tokens are joined to words. Neighbours of one type
are joined to entities, by the rules of transformers' token-classification pipeline.

Dimensions: M rows of tokens or of words, K labels.
"""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest
from encoder_engine.packing.tag_paths import viterbi
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.items import Items, Ragged
from encoder_engine.tasks.token_classification import TokenClassificationTask
from encoder_engine.tasks.words.tags import OUTSIDE
from encoder_engine.tasks.words.windows import template_ids
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import WordPieceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Encoding, Tokenizer

    Integers = npt.NDArray[np.integer]
    Floats = npt.NDArray[np.floating]

__all__ = ["Aggregation", "Entity", "EntityLabel", "EntityTask", "FoundEntity", "read_labels"]

Aggregation = Literal["none", "simple", "first", "average", "max"]
# The first letters of BIOES, BILOU and BMES beside B and I: whether an entity begins, and ends.
_LETTERS = {
    "M": (False, False),
    "E": (False, True),
    "L": (False, True),
    "S": (True, True),
    "U": (True, True),
}


class Entity(NamedTuple):
    """Characters ``start`` to ``stop - 1`` of a text, with a label and the label's probability.

    That of a :class:`Tagger` is a mean over the entity's tokens or words. ``text`` is always this
    slice of the text.
    """

    label: str
    start: int
    stop: int
    text: str
    score: float


class FoundEntity(NamedTuple):
    """An entity, with the index of its first token among the text's tokens, and that token's id."""

    entity: Entity
    place: int
    token_id: int


class _Window(NamedTuple):
    """Tokens ``start`` to ``stop - 1`` of a text, which the model reads together.

    Only the logits of tokens ``first`` to ``last - 1`` are used.
    """

    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class EntityTask(TokenClassificationTask):
    """Finds the entities of raw texts with a tagger; its examples are texts.

    ``aggregation``: ``"none"``: each token is an entity; ``"simple"``: neighbouring tokens of a
    type are joined; ``"first"``, ``"average"``, ``"max"``: tokens are first joined to words, each
    with the label of its first token, of the mean of its tokens' probabilities, or of its most
    certain token.
    ``ignored``: labels that are no entity.
    ``stride``: the tokens that the windows of a long text share; of overlapping entities the longer
    one is kept, then the more probable one. None: each token is read in the window of its maximum
    context.
    """

    aggregation: Aggregation = "simple"
    ignored: tuple[str, ...] = (OUTSIDE,)
    stride: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(Aggregation)
        if self.aggregation not in known:
            raise InputError(
                f"aggregation must be one of {', '.join(known)}, got {self.aggregation!r}"
                f"{nearest(str(self.aggregation), known)}"
            )

    @classmethod
    def of(cls, task: TokenClassificationTask, **options: Any) -> Self:
        """Make this task from a tagger's task; ``options``: the fields that only this class has."""
        return cls(**{field.name: getattr(task, field.name) for field in fields(task)}, **options)

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, windows: Windows) -> Items:
        """Tokenize raw texts; a text longer than ``windows.max_length`` is cut into windows.

        The windows overlap, and each is an item of the result, so no token is lost. Raises
        :class:`InputError` if a window is too short for the overlap, :class:`TextError` with the
        row of a text that has a lone surrogate.
        """
        encoding = tokenizer.encode_batch(examples, return_offsets=True)
        before, after = map(len, template_ids(tokenizer))
        room = windows.max_length - before - after
        shared = windows.overlap if self.stride is None else self.stride
        if room < 1 or (self.stride is not None and self.stride >= room):
            raise InputError(
                f"the model reads {windows.max_length} tokens, {max(room, 0)} of them of a text; "
                f"windows cannot share {shared}: lower the stride, or raise max_length"
            )
        begins = encoding.cu_seqlens.astype(np.int64)
        index, reads, owners, places = [], [], [], []
        for text, (begin, end) in enumerate(pairwise(begins.tolist())):
            first, last = begin + before, end - after
            for one in self._windows(last - first, room, min(shared, room - 1)):
                whole = one.stop - one.start == last - first
                inside = np.arange(first + one.start, first + one.stop)
                head, tail = np.arange(begin, first), np.arange(last, end)
                index.append(np.arange(begin, end) if whole else np.r_[head, inside, tail])
                reads.append(np.arange(first + one.first, first + one.last))
                places.append(reads[-1] - first - one.start + before)
                owners.append(text)
        read = np.concatenate([*reads, np.zeros(0, np.int64)])
        tokens = np.concatenate([*index, np.zeros(0, np.int64)])
        offsets = np.r_[0, np.cumsum([len(one) for one in reads])].astype(np.int64)
        examples_of = np.array(owners, np.int64)
        number = read - begins[:-1][np.repeat(examples_of, np.diff(offsets))] - before
        columns = {
            "places": np.concatenate([*places, np.zeros(0, np.int64)]),
            "words": number,
            "indices": number + before,
            "ids": encoding.ids[read],
            "chars": encoding.offsets[read],
            "joined": self._joined(examples, tokenizer, encoding)[read],
        }
        return Items(
            rows=TokenRows(
                ids=encoding.ids[tokens],
                cu_seqlens=np.r_[0, np.cumsum([len(one) for one in index])].astype(np.int32),
                type_ids=encoding.type_ids[tokens] if encoding.has_types else None,
            ),
            offsets=np.arange(len(owners) + 1),
            examples=examples_of,
            columns={
                "num_words": (np.diff(begins) - before - after)[examples_of],
                **{name: Ragged(values, offsets) for name, values in columns.items()},
            },
        )

    def _windows(self, length: int, room: int, shared: int) -> Iterator[_Window]:
        """Yield the windows of a text with ``length`` tokens.

        ``room``: the tokens of a text in a window; ``shared``: those that two windows share.
        """
        if length <= room:
            yield _Window(0, length, 0, length)
            return
        starts = [*range(0, length - room, room - shared)]
        if self.stride is not None:
            for start in (*starts, starts[-1] + room - shared):
                stop = min(start + room, length)
                yield _Window(start, stop, start, stop)
            return
        starts.append(length - room)
        # In the middle of what two windows share, both give a token the same context.
        cuts = [0, *((one + other + room) // 2 for one, other in pairwise(starts)), length]
        for start, first, last in zip(starts, cuts[:-1], cuts[1:], strict=True):
            yield _Window(start, start + room, first, last)

    def _joined(
        self, texts: Sequence[str], tokenizer: Tokenizer, encoding: Encoding
    ) -> npt.NDArray[np.bool_]:
        """Mark the tokens that continue the word of the token before them, bool [T].

        In WordPiece these are tokens whose string differs in length from their characters
        (``##ing``); in other tokenizers, tokens without a space before them or at their start. An
        unknown token begins a word. None is marked unless the aggregation joins tokens to words.
        """
        chars, ids = encoding.offsets, encoding.ids
        if self.aggregation in ("none", "simple"):
            return np.zeros(len(ids), np.bool_)
        if _marks_pieces(tokenizer):
            distinct, numbers = np.unique(ids, return_inverse=True)
            sizes = [len(tokenizer.id_to_token(one) or "") for one in distinct.tolist()]
            lengths = np.array(sizes, np.int64)[numbers]
            found: npt.NDArray[np.bool_] = lengths != chars[:, 1] - chars[:, 0]
        else:
            starts, bounds = chars[:, 0].tolist(), encoding.cu_seqlens.tolist()
            found = np.array(
                [
                    start > 0 and " " not in text[start - 1 : start + 1]
                    for text, (begin, end) in zip(texts, pairwise(bounds), strict=True)
                    for start in starts[begin:end]
                ],
                np.bool_,
            )
        if tokenizer.unk_token_id is not None:
            found[ids == tokenizer.unk_token_id] = False
        return found

    def decode(self, outputs: Outputs, items: Items, examples: Sequence[Any]) -> list[Any]:
        """Return the entities of each text, a list of :class:`FoundEntity` per text."""
        logits_MK = outputs["logits"].astype(np.float32)
        # In float32 as in transformers, where more rows have the same maximum, 1.
        raised = np.exp(logits_MK - logits_MK.max(-1, keepdims=True))
        probabilities_MK = raised / raised.sum(-1, keepdims=True)
        labels, bounds = read_labels(self.labels), items.ragged("words").offsets
        firsts = np.searchsorted(items.examples, np.arange(len(examples) + 1))
        found = []
        for text, (first, last) in zip(examples, pairwise(firsts.tolist()), strict=True):
            parts = [bounds[first], bounds[last]]
            if self.stride is not None:
                parts = bounds[first : last + 1].tolist()
            entities = [
                one
                for part in pairwise(parts)
                for one in self._find(text, slice(*part), probabilities_MK, items, outputs, labels)
            ]
            found.append(_longest(entities) if len(parts) > 2 else entities)
        return found

    def _find(
        self,
        text: str,
        part: slice,
        probabilities_MK: Floats,
        items: Items,
        outputs: Outputs,
        labels: Sequence[EntityLabel],
    ) -> Iterator[FoundEntity]:
        """Yield the entities in consecutive tokens of a text; ``part``: these tokens' rows."""
        rows_MK, chars = probabilities_MK[part], items.ragged("chars").values[part]
        if not len(rows_MK):
            return
        begins = ~items.ragged("joined").values[part]
        begins[0] = True
        firsts = np.flatnonzero(begins)
        if self.aggregation not in ("none", "simple"):
            rows_MK = self._words(rows_MK, firsts)
        stops = chars[np.r_[firsts[1:], len(chars)] - 1, 1].tolist()
        starts = chars[firsts, 0].tolist()
        tags = self._tags(rows_MK, outputs)
        scores = rows_MK[np.arange(len(tags)), tags]
        indices = items.ragged("indices").values[part][firsts].tolist()
        ids = items.ragged("ids").values[part][firsts].tolist()
        for first, last in self._groups([labels[tag] for tag in tags.tolist()]):
            tag = tags[first]
            name = self.labels[tag] if self.aggregation == "none" else labels[tag].type
            if name not in self.ignored:
                start, stop = starts[first], stops[last - 1]
                score = float(scores[first:last].mean())
                yield FoundEntity(
                    Entity(name, start, stop, text[start:stop], score), indices[first], ids[first]
                )

    def _words(self, rows_MK: Floats, firsts: Integers) -> Floats:
        """Return the label probabilities of words, [words, K], from those of their tokens.

        ``firsts``: the index of each word's first token.
        """
        if self.aggregation == "first":
            return rows_MK[firsts]
        if self.aggregation == "average":
            counts = np.diff(np.r_[firsts, len(rows_MK)])
            means: Floats = np.add.reduceat(rows_MK, firsts, axis=0)
            means /= counts[:, None]
            return means
        highest = rows_MK.max(1)
        best = [
            first + int(highest[first:last].argmax())
            for first, last in pairwise([*firsts.tolist(), len(rows_MK)])
        ]
        return rows_MK[best]

    def _tags(self, rows_MK: Floats, outputs: Outputs) -> npt.NDArray[np.int64]:
        """Return the index of each row's label, decoded as in the tagger's training.

        ``rows_MK``: the label probabilities of tokens or words.
        """
        if self.decoding == "argmax":
            best: npt.NDArray[np.int64] = rows_MK.argmax(1)
            return best
        if self.decoding == "crf":
            scores = [outputs[name] for name in ("start", "end", "transitions")]
        else:
            legal = self.legal_tags
            allowed = (legal.start, legal.end, legal.transitions)
            scores = [np.where(one, 0.0, -np.inf) for one in allowed]
        # Log probabilities differ from logits by one number per row: the best path is the same.
        emissions = np.log(np.maximum(rows_MK, np.finfo(np.float32).tiny))
        return viterbi(emissions, np.array([0, len(rows_MK)]), *scores)

    def _groups(self, labels: Sequence[EntityLabel]) -> Iterator[tuple[int, int]]:
        """Yield the ranges [first, stop) of consecutive labels that form one entity each."""
        first = 0
        for row in range(1, len(labels) + 1):
            if (
                row == len(labels)
                or self.aggregation == "none"
                or labels[row].begins
                or labels[row - 1].ends
                or labels[row].type != labels[row - 1].type
            ):
                yield first, row
                first = row


def _marks_pieces(tokenizer: Tokenizer) -> bool:
    """Return whether tokens within a word have a prefix such as ``##``."""
    model = tokenizer.spec.model
    if isinstance(model, LibrarySpec):
        return bool(json.loads(model.model).get("continuing_subword_prefix"))
    return isinstance(model, WordPieceSpec) and bool(model.continuing_subword_prefix)


def _longest(entities: Sequence[FoundEntity]) -> list[FoundEntity]:
    """Keep the longest of overlapping entities; of equally long ones the most probable."""
    found: list[FoundEntity] = []
    for one in sorted(entities, key=lambda one: one.entity.start):
        kept = found[-1].entity if found else None
        if kept is None or not kept.start <= one.entity.start < kept.stop:
            found.append(one)
            continue
        lengths = one.entity.stop - one.entity.start, kept.stop - kept.start
        if lengths[0] > lengths[1] or (lengths[0] == lengths[1] and one.entity.score > kept.score):
            found[-1] = one
    return found


class EntityLabel(NamedTuple):
    """A label's entity type, and whether the label begins or ends an entity.

    A label that does neither continues an entity of its type.
    """

    type: str
    begins: bool = False
    ends: bool = False


def read_labels(labels: Sequence[str]) -> tuple[EntityLabel, ...]:
    """Return the entity type and the place within an entity that each label of a tagger stands for.

    Reads BIO, IOB1, BIOES, BILOU, BMES and plain labels.
    An I- that continues no entity of its type begins one, as in IOB1. E-, L-, M-, S- and U- are
    prefixes of a scheme if there is a B- label of the same type. Other labels are types as they
    are, even with a hyphen.
    """
    there = set(labels)
    found = []
    for label in labels:
        letter, hyphen, kind = label[:1], label[1:2], label[2:]
        if hyphen != "-" or not kind:
            found.append(EntityLabel(label))
        elif letter in ("B", "I"):
            found.append(EntityLabel(kind, begins=letter == "B"))
        elif letter in _LETTERS and f"B-{kind}" in there:
            found.append(EntityLabel(kind, *_LETTERS[letter]))
        else:
            found.append(EntityLabel(label))
    return tuple(found)
