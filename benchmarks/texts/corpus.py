"""Builds the texts of the embedding cases to wanted token lengths, the same on every machine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.texts.packed import read_text

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "examples" / "python_stdlib.jsonl"
NUM_SPECIAL_TOKENS = 2
CountTokens = Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The number of texts of each length distribution, and the number of tokens of a long text."""

    num_short: int
    num_skewed: int
    num_long: int
    long_tokens: int


FULL = Sizes(num_short=1000, num_skewed=500, num_long=60, long_tokens=512)
SMOKE = Sizes(num_short=6, num_skewed=5, num_long=2, long_tokens=40)


def read_documents(source: str) -> list[str]:
    """Read the documents that texts are cut from; ``source``: "bundled" or "prose"."""
    if source == "bundled":
        lines = BUNDLED.read_text(encoding="utf-8").splitlines()
        return [str(json.loads(line)["text"]) for line in lines]
    return read_text("english.txt").splitlines()


def short_sentences(documents: Sequence[str], count: int, *, seed: int) -> list[str]:
    """Draw ``count`` sentences of 4 to 40 words; none is repeated before all were drawn."""
    sentences = [
        sentence
        for document in documents
        for sentence in re.split(r"(?<=[.!?])\s+", document)
        if 4 <= len(sentence.split()) <= 40
    ]
    order = np.random.default_rng(seed).permutation(len(sentences))
    return [sentences[order[i % len(order)]] for i in range(count)]


def skewed_lengths(count: int, *, seed: int) -> list[int]:
    """Draw lengths from 16 to 256 tokens, log-uniform: many short passages, a few long ones."""
    drawn = np.random.default_rng(seed).uniform(np.log(16), np.log(256), size=count)
    return [round(length) for length in np.exp(drawn)]


def passages(
    documents: Sequence[str], lengths: Sequence[int], count_tokens: CountTokens, *, seed: int
) -> list[str]:
    """Cut texts of the given numbers of tokens at most, special tokens included.

    A text ends before the word that would make it too long. Used-up documents start anew.
    """
    words = _endless_words(documents, count_tokens, seed=seed)
    texts = []
    carried: tuple[str, int] | None = None
    for length in lengths:
        room = length - NUM_SPECIAL_TOKENS
        taken: list[str] = []
        while True:
            word, tokens = carried if carried is not None else next(words)
            if tokens > room and taken:
                carried = (word, tokens)
                break
            carried = None
            taken.append(word)
            room -= tokens
        texts.append(" ".join(taken))
    return texts


def _endless_words(
    documents: Sequence[str], count_tokens: CountTokens, *, seed: int
) -> Iterator[tuple[str, int]]:
    order = np.random.default_rng(seed).permutation(len(documents))
    words = [word for i in order for word in documents[i].split()]
    counted = list(zip(words, count_tokens(words), strict=True))
    while True:
        yield from counted


def fingerprint(texts: Sequence[str]) -> str:
    """Return a hash of a list of texts."""
    joined = json.dumps(list(texts), ensure_ascii=True).encode()
    return hashlib.sha256(joined).hexdigest()[:16]
