"""Cuts documents into passages of whole sentences, in words or in tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar

from encoder_engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.text import Tokenizer

__all__ = ["cut_passages", "frame_of", "sentinel_ids"]

Token = TypeVar("Token", bound=Hashable)


def cut_passages(sentences: Sequence[list[Token]], longest: int) -> Iterator[list[list[Token]]]:
    """Yield a document's passages: consecutive sentences, at most ``longest`` tokens in total.

    Longer sentences are cut. Empty sentences are left out.
    """
    passage: list[list[Token]] = []
    room = longest
    for sentence in sentences:
        for start in range(0, len(sentence), longest):
            piece = sentence[start : start + longest]
            if len(piece) > room:
                yield passage
                passage, room = [], longest
            passage.append(piece)
            room -= len(piece)
    if passage:
        yield passage


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of ``<extra_id_0>``, ``<extra_id_1>``, ... of a vocabulary (T5).

    Raises :class:`ConfigError` for a vocabulary without them.
    """
    found: list[int] = []
    while (number := tokenizer.token_to_id(f"<extra_id_{len(found)}>")) is not None:
        found.append(number)
    if not found:
        raise ConfigError(
            "the tokenizer has no sentinels (<extra_id_0>, ...); choose a tokenizer of T5, or add "
            "them to a WordPiece vocabulary by `encoder-engine prepare --add-tokens`"
        )
    return found


def frame_of(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens that a tokenizer puts before and after a text."""
    text = "a"
    plain, framed = (tokenizer.encode(text, special).tolist() for special in (False, True))
    first = next(
        place
        for place in range(len(framed) - len(plain) + 1)
        if framed[place : place + len(plain)] == plain
    )
    return framed[:first], framed[first + len(plain) :]
