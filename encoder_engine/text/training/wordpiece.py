"""Trains a WordPiece vocabulary with the trainer of Hugging Face tokenizers, reproducibly.

That trainer numbers the pieces of its alphabet in the order of a hash table, which differs from
process to process, and decides ties by those numbers. Here the alphabet is counted beforehand and
handed over in a fixed order, so that the same input gives the same vocabulary.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.text.spec.tokenizer import BertNormalizerSpec

__all__ = ["Alphabet", "train_wordpiece"]

PREFIX = "##"


class Alphabet:
    """Counts the characters of normalized lines, and notes which of them occur within words."""

    def __init__(self, normalizer: BertNormalizerSpec) -> None:
        normalizers, pre_tokenizers = _import("normalizers"), _import("pre_tokenizers")
        self._normalizer = normalizers.BertNormalizer(
            clean_text=normalizer.clean_text,
            handle_chinese_chars=normalizer.handle_chinese_chars,
            strip_accents=normalizer.strip_accents,
            lowercase=normalizer.lowercase,
        )
        self._pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._kinds: dict[str, str] = {}

    def see(self, line: str) -> None:
        """Count the characters of a line of text."""
        text = f" {self._normalizer.normalize_str(line)}"
        self._pairs.update(pairwise(text))

    def pieces(self, coverage: float) -> list[str]:
        """Return the single-character pieces that cover the share ``coverage`` of all characters.

        The most frequent characters are kept, of equally frequent ones those with the lower code
        points. They come in code point order, then those found within words, with ``##`` in front.
        """
        characters: Counter[str] = Counter()
        for (_, character), count in self._pairs.items():
            if self._kind(character) != "space":
                characters[character] += count
        kept: set[str] = set()
        needed = coverage * characters.total()
        for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
            if needed <= 0:
                break
            kept.add(character)
            needed -= count
        inner = {
            after
            for before, after in self._pairs
            if self._kind(before) == self._kind(after) == "letter" and after in kept
        }
        return [*sorted(kept), *(PREFIX + character for character in sorted(inner))]

    def _kind(self, character: str) -> str:
        """Return whether a character is a ``letter``, white ``space``, or a ``word`` of its own."""
        kind = self._kinds.get(character)
        if kind is None:
            pieces = self._pre_tokenizer.pre_tokenize_str(f"a{character}a")
            kind = {1: "letter", 2: "space", 3: "word"}[len(pieces)]
            self._kinds[character] = kind
        return kind

    def tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer that the trainer reads text with."""
        tokenizer = _import("").Tokenizer(_import("models").WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = self._normalizer
        tokenizer.pre_tokenizer = self._pre_tokenizer
        return tokenizer


def train_wordpiece(
    lines: Iterable[str],
    alphabet: Alphabet,
    *,
    special_tokens: list[str],
    vocab_size: int,
    min_frequency: int,
    coverage: float,
) -> dict[str, int]:
    """Train a WordPiece vocabulary on ``lines``; return the pieces with their ids.

    ``alphabet``: must have counted the lines. Raises :class:`InputError` where the vocabulary
    cannot even hold the alphabet.
    """
    pieces = alphabet.pieces(coverage)
    least = len(special_tokens) + len(pieces)
    if least > vocab_size:
        raise InputError(
            f"vocab_size is {vocab_size}, but the special tokens and the alphabet alone are "
            f"{least} pieces; raise vocab_size or lower character_coverage"
        )
    kept = sorted({piece.removeprefix(PREFIX) or piece for piece in pieces})
    trainer = _import("trainers").WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=[*special_tokens, *pieces],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        continuing_subword_prefix=PREFIX,
    )
    tokenizer = alphabet.tokenizer()
    tokenizer.train_from_iterator(lines, trainer)
    vocab: dict[str, int] = tokenizer.get_vocab()
    return dict(sorted(vocab.items(), key=lambda item: item[1]))


def _import(module: str) -> Any:
    """Import a module of Hugging Face tokenizers, or the package itself for ""."""
    import importlib

    try:
        return importlib.import_module(f"tokenizers.{module}".rstrip("."))
    except ImportError as error:
        raise MissingDependencyError(
            "training a vocabulary", library="tokenizers", extra="train"
        ) from error
