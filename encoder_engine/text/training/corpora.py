"""Samples texts of labelled corpora to train a vocabulary: counts the texts, then draws them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, TextError
from encoder_engine.strings import describe_surrogate, find_surrogate

__all__ = ["CorpusCount", "Lines", "Stage", "allot", "open_corpora", "sample"]

Corpora = Mapping[str, Iterable[str]]
Stage = Literal["count", "read", "train"]
# sentencepiece joins sentences with this character and skips those that hold it.
RESERVED = "\u2585"


@dataclass(kw_only=True)
class CorpusCount:
    """The number of texts in a corpus, and the number that were read, repetitions included."""

    num_texts: int = 0
    num_read: int = 0


@dataclass(kw_only=True)
class Lines:
    """Cuts texts into lines for a trainer of vocabularies, and counts what is changed.

    num_cut: the number of lines longer than ``max_length``, cut at a space if possible.
    num_blank: the number of texts without a character.
    num_reserved: the number of lines with a character that the trainer reserves; it becomes a
    space.
    """

    max_length: int
    num_lines: int = 0
    num_blank: int = 0
    num_cut: int = 0
    num_reserved: int = 0

    def of(self, text: str) -> Iterator[str]:
        """Yield the lines of a text, each of at most ``max_length`` characters."""
        if not text or text.isspace():
            self.num_blank += 1
            return
        for whole in text.splitlines():
            line = whole.strip()
            if RESERVED in line:
                self.num_reserved += 1
                line = line.replace(RESERVED, " ").strip()
            self.num_cut += len(line) > self.max_length
            while len(line) > self.max_length:
                stop = line.rfind(" ", 1, self.max_length + 1)
                stop = self.max_length if stop < 0 else stop
                self.num_lines += 1
                yield line[:stop]
                line = line[stop:].lstrip()
            if line:
                self.num_lines += 1
                yield line


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The texts to train a vocabulary on; ``targets``: how many to read from each corpus."""

    corpora: Corpora
    targets: Mapping[str, int]
    counts: Mapping[str, CorpusCount]
    seed: int
    watch: Callable[[Stage, int], None] = field(default=lambda _stage, _done: None)

    def __iter__(self) -> Iterator[str]:
        """Yield the drawn texts, one corpus after another, each in its own order."""
        done = 0
        for name, texts in self.corpora.items():
            count = self.counts[name]
            count.num_read = 0
            # A generator for each corpus, so that its sample does not depend on the other corpora.
            generator = random.Random(f"{self.seed} {name}")
            for text in _chosen(texts, count.num_texts, self.targets[name], generator):
                count.num_read += 1
                done += 1
                self.watch("read", done)
                yield text


def _chosen(
    texts: Iterable[str], size: int, target: int, generator: random.Random
) -> Iterator[str]:
    """Draw ``target`` texts of a corpus of ``size`` texts, in its order.

    Each text is yielded ``target // size`` times, and a uniform subsample once more. Selection
    sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S) needs one pass and no
    memory.
    """
    repeats, wanted = divmod(target, size) if size else (0, 0)
    left = size
    for text in texts:
        chosen = left > 0 and generator.random() * left < wanted
        wanted -= chosen
        left -= 1
        for _ in range(repeats + chosen):
            yield text


def open_corpora(corpora: Corpora | Iterable[str]) -> Corpora:
    """Return texts as corpora by label; a corpus without a label has the label "".

    Raises :class:`InputError` for an iterator, which cannot be read twice, and for no corpus, and
    :class:`TextError` for a str.
    """
    if isinstance(corpora, str):
        raise TextError("corpora is one str; pass a list of texts, or a mapping of labelled lists")
    labelled = corpora if isinstance(corpora, Mapping) else {"": corpora}
    if not labelled:
        raise InputError("no corpus given")
    for name, texts in labelled.items():
        where = f"corpus {name!r}" if name else "the corpus"
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise TextError(f"{where} is {type(texts).__name__}, expected an iterable of str")
        if isinstance(texts, Iterator):
            raise InputError(
                f"{where} is {type(texts).__name__}, which can be read only once, but sizes are "
                "counted before texts are sampled; pass a list, or an object whose __iter__ "
                "starts anew"
            )
    return labelled


def count_texts(
    corpora: Corpora, see: Callable[[str], None], watch: Callable[[Stage, int], None]
) -> dict[str, CorpusCount]:
    """Count the texts of each corpus, by its label; call ``see`` with each text.

    ``watch``: called with ``"count"`` and the number of texts so far. Raises :class:`InputError`
    for a corpus without texts, and :class:`TextError`.
    """
    counts: dict[str, CorpusCount] = {}
    done = 0
    for name, texts in corpora.items():
        counts[name] = CorpusCount()
        for row, text in enumerate(texts):
            _check_text(text, name, row)
            counts[name].num_texts += 1
            see(text)
            done += 1
            watch("count", done)
        if counts[name].num_texts == 0:
            raise InputError(f"corpus {name!r} holds no texts" if name else "there are no texts")
    return counts


def _check_text(text: object, name: str, row: int) -> None:
    where = f"text {row} of corpus {name!r}" if name else f"text {row}"
    if not isinstance(text, str):
        raise TextError(f"{where} is {type(text).__name__}, expected str", row=row)
    if not text.isascii() and (place := find_surrogate(text)) is not None:
        raise TextError(f"{where} has {describe_surrogate(text, place)}", row=row)


def allot(sizes: Mapping[str, int], *, alpha: float, limit: int | None) -> dict[str, int]:
    """Return how many texts to read of each corpus, in proportion to p^alpha.

    p is the corpus's share of all texts. ``limit``: the total number of texts to read, by default
    all; numbers are rounded by largest remainder, and every corpus gets at least one text.
    """
    total = sum(sizes.values())
    wanted = total if limit is None else min(limit, total)
    weights = {name: (size / total) ** alpha for name, size in sizes.items()}
    whole = sum(weights.values())
    exact = {name: wanted * weight / whole for name, weight in weights.items()}
    targets = {name: max(1, int(share)) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (targets[name] - exact[name], name))
    for name in by_remainder[: max(0, wanted - sum(targets.values()))]:
        targets[name] += 1
    return targets


def sample(
    corpora: Corpora,
    counts: Mapping[str, CorpusCount],
    *,
    alpha: float,
    limit: int | None,
    seed: int,
    watch: Callable[[Stage, int], None],
) -> Sample:
    """Return the texts to train a vocabulary on, from corpora whose texts have been counted.

    ``alpha``, ``limit``: see :func:`allot`. ``watch``: called with ``"read"`` and their number.
    """
    sizes = {name: count.num_texts for name, count in counts.items()}
    targets = allot(sizes, alpha=alpha, limit=limit)
    return Sample(corpora=corpora, targets=targets, counts=counts, seed=seed, watch=watch)
