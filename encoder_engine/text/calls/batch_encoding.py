"""A tokenizer call's result: a dict of fields, with the members of transformers' BatchEncoding."""

from __future__ import annotations

import sys
from collections import UserDict
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.text.calls.row_encodings import RowEncoding

__all__ = ["BatchEncoding", "CharSpan", "TokenSpan", "batch_class"]


class CharSpan(NamedTuple):
    """The characters from ``start`` to ``end - 1`` of a text."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """The tokens from ``start`` to ``end - 1`` of a row."""

    start: int
    end: int


def _of_row(name: str, what: str, span: type[CharSpan | TokenSpan] | None = None) -> Any:
    """Make a method of :class:`BatchEncoding` that calls the method ``name`` of one of its rows.

    ``what``: what it returns, for its docstring. ``span``: the class of a returned range.
    """
    unit = name.partition("_to_")[0]
    names = (f"batch_or_{unit}_index", f"{unit}_index", "sequence_index")

    def method(self: BatchEncoding, *places: int, **named: int) -> Any:
        given = dict(zip(names, places, strict=False))
        if len(places) > len(names) or named.keys() - names or named.keys() & given.keys():
            raise TypeError(f"{name} takes {', '.join(names)}, got {places} and {named}")
        given |= named
        first, second = given[names[0]], given.get(names[1])
        row, place = (0, first) if second is None else (first, second)
        more = {name: one for name, one in given.items() if name == names[2]}
        found = getattr(self[row], name)(place, **more)
        return found if span is None or found is None else span(*found)

    method.__name__ = name
    method.__doc__ = f"Return {what}; ``{names[0]}`` is that of the {unit} where it is alone."
    return method


class BatchEncoding(UserDict[str, Any]):
    """The fields of a tokenizer call's result by name, such as ``input_ids``; its rows by index.

    A row is what one text or pair was tokenized to.
    """

    def __init__(
        self,
        data: dict[str, Any],
        encoding: Sequence[RowEncoding] | None = None,
        *,
        n_sequences: int | None = None,
    ) -> None:
        super().__init__(data)
        self.encodings, self.n_sequences = encoding, n_sequences

    def __getitem__(self, item: Any) -> Any:
        """Return a field by its name, one row by its index, or several rows by a slice."""
        if isinstance(item, str):
            return self.data[item]
        if self.encodings is None:
            raise InputError("this batch was padded from ids and has no texts; call the tokenizer")
        return self.encodings[item]

    def __getattr__(self, name: str) -> Any:
        """Return a field of the result, such as ``input_ids``, as an attribute."""
        if name != "data" and name in self.data:
            return self.data[name]
        raise AttributeError(f"this BatchEncoding has no field {name!r}")

    @property
    def is_fast(self) -> bool:
        """True if rows can be read one by one, as with transformers' fast tokenizers."""
        return self.encodings is not None

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Return the tokens of one row (a text or pair of the batch) as strings."""
        return list(self[batch_index].tokens)

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return, per token of one row, 0 or 1 for its text; ``None`` for special tokens."""
        return list(self[batch_index].sequence_ids)

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return, per token of one row, its word's index; ``None`` for special tokens."""
        return list(self[batch_index].word_ids)

    token_to_sequence: Callable[..., int | None] = _of_row("token_to_sequence", "a token's text")
    token_to_word: Callable[..., int | None] = _of_row("token_to_word", "the word of a token")
    token_to_chars = _of_row("token_to_chars", "the characters of a token", CharSpan)
    word_to_tokens = _of_row("word_to_tokens", "the tokens of a word", TokenSpan)
    word_to_chars = _of_row("word_to_chars", "the characters of a word", CharSpan)
    char_to_token: Callable[..., int | None] = _of_row("char_to_token", "a character's token")
    char_to_word: Callable[..., int | None] = _of_row("char_to_word", "a character's word")

    def to(self, device: Any, *, non_blocking: bool = False) -> BatchEncoding:
        """Move the fields that are tensors to a device, in place; return this object."""
        for name, values in self.data.items():
            if hasattr(values, "to"):
                self.data[name] = values.to(device=device, non_blocking=non_blocking)
        return self


def batch_class() -> Any:
    """Return transformers' BatchEncoding if transformers is imported, else this package's."""
    loaded = sys.modules.get("transformers.tokenization_utils_base")
    return BatchEncoding if loaded is None else loaded.BatchEncoding
