"""Validates texts for Hugging Face tokenizers, with the messages of csrc/bindings/errors.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from encoder_engine.errors import TextError
from encoder_engine.strings import describe_surrogate, find_surrogate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["check_batch", "check_text"]

ADVICE: dict[type, str] = {
    type(None): "; drop the row or pass ''",
    bytes: "; decode it first, for example with .decode('utf-8')",
    bytearray: "; decode it first, for example with .decode('utf-8')",
    list: "; give pairs by pairs=, and lists of words with is_split_into_words=True",
    tuple: "; give pairs by pairs=, and lists of words with is_split_into_words=True",
    float: "; a missing value in a table often reads as a number",
    int: "; a missing value in a table often reads as a number",
}


def check_batch(texts: object, what: str, *, words: bool) -> Sequence[Any]:
    """Return texts, or lists of words, as a list or tuple; raises :class:`TextError` for others."""
    if not isinstance(texts, list | tuple):
        texts = list(cast("Iterable[str]", texts))
    for row, text in enumerate(texts):
        where = f"{what} at row {row}"
        if not words:
            check_text(text, where, row)
            continue
        if not isinstance(text, list | tuple):
            raise TextError(f"{where} is {type(text).__name__}, expected a list of words", row=row)
        for word in text:
            check_text(word, f"a word of the {where}", row)
    return texts


def check_text(text: object, where: str, row: int | None) -> None:
    """Raise :class:`TextError` for a value that is not a str or has a lone surrogate."""
    if not isinstance(text, str):
        advice = next((words for kind, words in ADVICE.items() if isinstance(text, kind)), "")
        raise TextError(f"{where} is {type(text).__name__}, expected str{advice}", row=row)
    if not text.isascii() and (place := find_surrogate(text)) is not None:
        raise TextError(f"{where} has {describe_surrogate(text, place)}", row=row)
