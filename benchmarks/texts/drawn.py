"""Draws long texts, and rows with labels, from the words of the repository's texts.

The same version of NumPy draws the same texts on every machine.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.texts.packed import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["ROWS", "continued", "write_rows"]

SEED = 20_240_229
# With these, 20 million characters of English have 56,542 different words, where as many of 29
# novels have 54,005; 5 million of 15 languages have 143,431 between white space, where as many of
# help texts have 141,510.
NEW_WORDS = {"english.txt": 0.16, "multilingual.txt": 0.5}
NUM_ROWS = 1024
# How many words the texts of a published set have: its least, its deciles, and its most.
WORDS = {
    "sst2": (1, 2, 3, 4, 5, 7, 9, 12, 15, 21, 52),
    "cola": (2, 4, 5, 6, 6, 7, 8, 9, 10, 13, 43),
    "mrpc": (6, 12, 14, 16, 17, 19, 20, 22, 24, 26, 31),
    "stsb": (2, 5, 6, 7, 7, 8, 9, 10, 12, 15, 56),
}
# The share of the words of a pair's second text that are not those of the first.
CHANGED = 0.2


@cache
def continued(name: str, num_characters: int) -> str:
    """Continue a text of the repository to a length; no document of the result occurs twice.

    After the text come copies of it with the lines in another order, in which some words that the
    text has once are replaced by new ones: the first half of one such word and the second half of
    another. :data:`NEW_WORDS` is the share of replaced words.
    """
    share = NEW_WORDS[name]
    text = read_text(name)
    lines = [line.split(" ") for line in text.split("\n")]
    counts = Counter(word for line in lines for word in line)
    rare = [word for word, number in counts.items() if number == 1]
    generator = np.random.default_rng(SEED)
    parts, length = [text], len(text)
    while length < num_characters:
        firsts, seconds = (generator.permutation(len(rare)).tolist() for _ in range(2))
        other: dict[str, str] = {
            word: rare[a][: -(-len(rare[a]) // 2)] + rare[b][len(rare[b]) // 2 :]
            for word, a, b in zip(rare, firsts, seconds, strict=True)
            if a < share * len(rare)
        }
        order: list[int] = generator.permutation(len(lines)).tolist()
        parts.append("\n".join(" ".join(other.get(w, w) for w in lines[i]) for i in order))
        length += len(parts[-1])
    return "".join(parts)[:num_characters]


Row = tuple[str, ...]


def _labelled(texts: Sequence[str], _: Sequence[str], labels: Sequence[int]) -> list[Row]:
    return [("sentence", "label"), *((t, str(n % 2)) for t, n in zip(texts, labels, strict=True))]


def _paraphrases(texts: Sequence[str], pairs: Sequence[str], labels: Sequence[int]) -> list[Row]:
    rows = zip(labels, texts, pairs, strict=True)
    return [("Quality", "#1 String", "#2 String"), *((str(n % 2), a, b) for n, a, b in rows)]


def _scored(texts: Sequence[str], pairs: Sequence[str], labels: Sequence[int]) -> list[Row]:
    rows = zip(texts, pairs, labels, strict=True)
    return [("sentence1", "sentence2", "score"), *((a, b, str(n / 10)) for a, b, n in rows)]


def _retrieved(texts: Sequence[str], pairs: Sequence[str], _: Sequence[int]) -> list[Row]:
    return [("query", "positive"), *zip(texts, pairs, strict=True)]


# The set whose lengths the texts have, and the columns.
ROWS: dict[str, tuple[str, Callable[[Sequence[str], Sequence[str], Sequence[int]], list[Row]]]] = {
    "sst2": ("sst2", _labelled),
    "cola": ("cola", _labelled),
    "mrpc": ("mrpc", _paraphrases),
    "stsb": ("stsb", _scored),
    "pairs": ("stsb", _retrieved),
}


def write_rows(name: str, folder: Path) -> Path:
    """Write 1,024 rows with the format and the text lengths of a published set; return the file.

    Texts are running words of the English text; a pair's second has about every fifth word changed.
    Labels and scores are drawn: the time of a training step does not depend on them.
    """
    lengths_of, columns = ROWS[name]
    words = read_text("english.txt").split()
    generator = np.random.default_rng(SEED)
    places = generator.uniform(0, 10, NUM_ROWS)
    lengths = np.rint(np.interp(places, range(11), WORDS[lengths_of])).astype(int).tolist()
    starts = generator.integers(0, len(words) - max(lengths), NUM_ROWS).tolist()
    first, second = [], []
    for start, length in zip(starts, lengths, strict=True):
        taken = words[start : start + length]
        others = generator.integers(0, len(words), length).tolist()
        changed = (generator.random(length) < CHANGED).tolist()
        first.append(" ".join(taken))
        second.append(
            " ".join(words[o] if c else w for w, o, c in zip(taken, others, changed, strict=True))
        )
    rows = columns(first, second, generator.integers(0, 51, NUM_ROWS).tolist())
    path = folder / f"{name}.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows), "utf-8", newline="\n")
    return path
