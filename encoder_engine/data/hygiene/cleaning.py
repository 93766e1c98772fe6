"""Cleans a stream of texts: languages, personal data, then exact, near and semantic duplicates.

A text is a duplicate if it equals, or is similar to, an earlier text that was kept; so the first of
several duplicates is kept. Counts say what was dropped and why; no text is logged.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from encoder_engine.data.hygiene.minhash import NearDuplicates
from encoder_engine.data.hygiene.personal import mask_personal
from encoder_engine.data.hygiene.semantic import SemanticDuplicates
from encoder_engine.data.hygiene.shingles import DIGEST_BYTES, normal_digest
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.data.hygiene.languages import Language

    Encode = Callable[[list[str]], npt.NDArray[np.floating]]
    Label = Callable[[str], Language]
    # What a window of texts adds to the memory of a cleaner, by name.
    Added = dict[str, npt.NDArray[Any]]

__all__ = ["CLEANING", "CleanCounts", "CleanSettings", "Cleaned", "Cleaner"]

Personal = Literal["mask", "drop", "keep"]

# Raised where the same texts are cleaned otherwise: an interrupted run goes on in its own version.
CLEANING = 2


@dataclass(frozen=True, kw_only=True)
class CleanSettings:
    """The steps of a cleaning run, and their thresholds.

    exact: drop texts whose normal form equals that of a kept text.
    near: the Jaccard similarity from which texts are near duplicates; None: these are kept.
    shingle_size: the number of words of a shingle (word n-gram).
    semantic: the cosine from which texts are semantic duplicates; None: these are kept.
    personal: what to do with personal data: ``mask`` replaces each match by its kind, such as
    ``<email>``; ``drop`` drops the text; ``keep`` does not search.
    languages: the languages to keep; empty: all.
    least_characters: texts that are shorter without surrounding white space are dropped.
    seed: the seed of the hash functions.

    Raises :class:`InputError` for values out of range.
    """

    exact: bool = True
    near: float | None = 0.8
    shingle_size: int = 5
    semantic: float | None = None
    personal: Personal = "mask"
    languages: tuple[str, ...] = ()
    least_characters: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.personal not in get_args(Personal):
            raise InputError(
                f"personal must be one of {', '.join(get_args(Personal))}, got {self.personal!r}"
            )
        for name, least in (("shingle_size", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}")


@dataclass(kw_only=True)
class CleanCounts:
    """Counts of a cleaning run.

    ``read``, ``kept``: texts. ``characters``: of the kept texts.
    ``dropped``: texts by the reason for which they were dropped.
    ``personal``: matches of personal data by kind; ``with_personal``: texts with any.
    ``languages``: kept texts by language, where they are labelled.
    """

    read: int = 0
    kept: int = 0
    characters: int = 0
    with_personal: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    personal: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)

    def values(self) -> dict[str, Any]:
        """Return the counts as JSON values; reasons, kinds and languages most frequent first."""
        return {
            name: dict(value.most_common()) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }

    def record(self) -> dict[str, Any]:
        """Return the counts as JSON values from which :meth:`of_record` restores them."""
        return deepcopy(vars(self))

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> CleanCounts:
        """Restore counts from the JSON values that :meth:`record` returned."""
        counts: dict[str, Any] = {
            name: Counter(value) if isinstance(value, dict) else value
            for name, value in values.items()
        }
        return cls(**counts)


class Cleaned(NamedTuple):
    """The outcome of cleaning a text.

    ``text``: the text to keep, masked if so configured; None: the text is dropped.
    ``language``: its language's code; None: texts are not labelled, or it was too short to be.
    ``reason``: why it is dropped.
    ``original``: the row index of the kept text that this text duplicates.
    """

    text: str | None
    language: str | None = None
    reason: str | None = None
    original: int | None = None


class Cleaner:
    """Cleans texts in order; memory grows with the kept texts' shingles, digests and vectors.

    encode: a function from texts to vectors, for semantic duplicates.
    label: a function from a text to its language.

    Raises :class:`InputError` where a setting needs one of these and it is missing.
    """

    def __init__(
        self, settings: CleanSettings, *, encode: Encode | None = None, label: Label | None = None
    ) -> None:
        if settings.semantic is not None and encode is None:
            raise InputError("semantic duplicates need a model that embeds texts")
        if settings.languages and label is None:
            raise InputError("choosing languages needs a labeller of languages")
        self.settings, self.counts = settings, CleanCounts()
        self._encode, self._label = encode, label
        self._seen: dict[bytes, int] = {}
        self._near = self._semantic = None
        if settings.near is not None:
            size = settings.shingle_size
            self._near = NearDuplicates(settings.near, size=size, seed=settings.seed)
        if settings.semantic is not None:
            self._semantic = SemanticDuplicates(settings.semantic)
        # What the last window added: new digests, and the entries of the indices.
        self._new: dict[bytes, int] = {}
        self._added: Added = {}

    def clean(self, texts: Sequence[str]) -> list[Cleaned]:
        """Clean the next texts of the stream; calls with more or fewer texts change no outcome."""
        found = [self._alone(text) for text in texts]
        self._new, self._added = {}, {}
        left = [number for number, one in enumerate(found) if one.text is not None]
        rows = [self.counts.read + number for number in left]
        copies = self._duplicates([str(found[number].text) for number in left], rows)
        for number, copy in zip(left, copies, strict=True):
            if copy is not None:
                found[number] = Cleaned(None, found[number].language, *copy)
        self._count(found)
        return found

    def added(self) -> Added:
        """Return what the last call of :meth:`clean` added to the state, for :meth:`restore`."""
        joined = b"".join(self._new)
        digests = np.frombuffer(joined, np.uint8).reshape(len(self._new), DIGEST_BYTES)
        rows = np.array(list(self._new.values()), np.int64)
        return {"exact digests": digests, "exact rows": rows, **self._added}

    def restore(self, added: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add to the state what :meth:`added` returned after a call of :meth:`clean`.

        Call this for all such results in their order. The caller restores ``counts``.
        """
        digests = map(bytes, added["exact digests"])
        self._seen.update(zip(digests, added["exact rows"].tolist(), strict=True))
        for name, index in (("near", self._near), ("semantic", self._semantic)):
            if index is not None and f"{name} rows" in added:
                inner = {
                    key.removeprefix(f"{name} "): value
                    for key, value in added.items()
                    if key.startswith(f"{name} ")
                }
                index.restore(inner)

    def _duplicates(self, texts: list[str], rows: list[int]) -> list[tuple[str, int] | None]:
        """Return for each text the kind of duplicate and the row that it copies; None: it is none.

        Texts are decided in order: no text is a duplicate of one that was dropped.
        """
        digests = [normal_digest(text) for text in texts] if self.settings.exact else []
        copies: list[tuple[str, int] | None] = [None] * len(texts)
        if self._near is not None:
            self._near.start(texts)
        if self._semantic is not None:
            # What duplicates a text of earlier windows by its words needs no vector.
            copies = [self._copied(place, digests) for place in range(len(texts))]
        left = [place for place, copy in enumerate(copies) if copy is None]
        if self._semantic is not None and left:
            assert self._encode is not None
            self._semantic.start(self._encode([texts[place] for place in left]))
        for vector, place in enumerate(left):
            copies[place] = self._copied(place, digests) or self._meant(vector)
            if copies[place] is None:
                self._keep(place, vector, rows[place], digests)
        for name, index in (("near", self._near), ("semantic", self._semantic)):
            if index is not None and left:
                self._added |= {f"{name} {key}": value for key, value in index.added().items()}
        return copies

    def _copied(self, place: int, digests: Sequence[bytes]) -> tuple[str, int] | None:
        """Return the kind of duplicate and the kept row that text ``place`` copies; None: no copy.

        The kind is ``"exact duplicate"`` or ``"near duplicate"``.
        """
        if digests and (row := self._seen.get(digests[place])) is not None:
            return "exact duplicate", row
        if self._near is not None and (row := self._near.find(place)) is not None:
            return "near duplicate", row
        return None

    def _meant(self, vector: int) -> tuple[str, int] | None:
        row = None if self._semantic is None else self._semantic.find(vector)
        return None if row is None else ("semantic duplicate", row)

    def _keep(self, place: int, vector: int, row: int, digests: Sequence[bytes]) -> None:
        if digests:
            self._seen[digests[place]] = self._new[digests[place]] = row
        if self._near is not None:
            self._near.keep(place, row)
        if self._semantic is not None:
            self._semantic.keep(vector, row)

    def _alone(self, text: str) -> Cleaned:
        """Return a text's outcome by length, language and personal data, without other texts."""
        settings = self.settings
        if len(text.strip()) < settings.least_characters:
            return Cleaned(None, None, "short")
        language = None if self._label is None else self._label(text).code
        if settings.languages and language not in settings.languages:
            return Cleaned(None, language, "language")
        if settings.personal != "keep":
            text, kinds = mask_personal(text)
            self.counts.personal.update(kinds)
            self.counts.with_personal += bool(kinds)
            if kinds and settings.personal == "drop":
                return Cleaned(None, language, "personal")
        return Cleaned(text, language)

    def _count(self, found: Sequence[Cleaned]) -> None:
        counts = self.counts
        counts.read += len(found)
        for one in found:
            if one.text is None:
                counts.dropped[str(one.reason)] += 1
                continue
            counts.kept += 1
            counts.characters += len(one.text)
            if one.language is not None:
                counts.languages[one.language] += 1
