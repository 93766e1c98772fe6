"""Single rows of a tokenizer call's result, with the members of tokenizers.Encoding.

A row is what one text or pair of the batch was tokenized to, or an overflow row of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from encoder_engine.text.calls.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.text.calls.options import CallOptions
    from encoder_engine.text.encoding import Encoding

__all__ = ["RowEncoding", "RowEncodings"]

Span: TypeAlias = tuple[int, int]


# The names of a row's fields, and of the same fields in a result.
FIELDS = {
    "ids": "input_ids",
    "type_ids": "token_type_ids",
    "attention_mask": "attention_mask",
    "special_tokens_mask": "special_tokens_mask",
    "offsets": "offset_mapping",
    "word_ids": "word_ids",
    "sequence_ids": "sequence_ids",
}


class RowEncoding:
    """One row of a tokenizer call's result: a tokenized text or pair, padding included.

    ``word_ids`` and ``sequence_ids`` are ``None``, and ``offsets`` are ``(0, 0)``, for special
    tokens of the template and for padding.
    """

    ids: list[int]
    type_ids: list[int]
    attention_mask: list[int]
    special_tokens_mask: list[int]
    offsets: list[Span]
    word_ids: list[int | None]
    sequence_ids: list[int | None]

    def __init__(
        self, fields: dict[str, Any], n_sequences: int, read_tokens: Callable[[], list[str]]
    ) -> None:
        vars(self).update(fields)
        self.n_sequences = n_sequences
        self._read_tokens = read_tokens

    @cached_property
    def tokens(self) -> list[str]:
        """The row's tokens, as the vocabulary writes them."""
        return self._read_tokens()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: fields and tokens, without the function that reads tokens."""
        return {name: value for name, value in vars(self).items() if name != "_read_tokens"} | {
            "tokens": self.tokens
        }

    def __len__(self) -> int:
        """Return the number of tokens of the row."""
        return len(self.ids)

    def _is_in(self, place: int, sequence_index: int) -> bool:
        """Return whether a token belongs to a text, 0 or 1; True if the row lacks this text."""
        return sequence_index >= self.n_sequences or self.sequence_ids[place] == sequence_index

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Return the index of the first token that contains a character of a text; or ``None``."""
        for place, (start, stop) in enumerate(self.offsets):
            if start <= char_pos < stop and self._is_in(place, sequence_index):
                return place
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Return the index of the word that contains a character of a text; or ``None``."""
        place = self.char_to_token(char_pos, sequence_index)
        return None if place is None else self.word_ids[place]

    def token_to_sequence(self, token_index: int) -> int | None:
        """Return 0 or 1 for the text of the row that a token belongs to; ``None`` for neither."""
        return self.sequence_ids[token_index] if token_index < len(self) else None

    def token_to_word(self, token_index: int) -> int | None:
        """Return the index of a token's word in its text; ``None`` for a special token."""
        return self.word_ids[token_index] if token_index < len(self) else None

    def token_to_chars(self, token_index: int) -> Span | None:
        """Return the character range of a token in its text; ``None`` for a special token."""
        if self.token_to_sequence(token_index) is None:
            return None
        return self.offsets[token_index]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """Return the range of a word's tokens in the row; ``None`` for a word without one."""
        places = [
            place
            for place, word in enumerate(self.word_ids)
            if word == word_index and self._is_in(place, sequence_index)
        ]
        return (places[0], places[-1] + 1) if places else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """Return the character range of a word in its text; ``None`` for a word without a token."""
        found = self.word_to_tokens(word_index, sequence_index)
        if found is None:
            return None
        return self.offsets[found[0]][0], self.offsets[found[1] - 1][1]


class RowEncodings(Sequence[RowEncoding]):
    """The rows of a tokenizer call's result: per text or pair one, or more with overflow rows.

    A call keeps no words and characters of tokens for its rows, which most callers do not read: the
    batch is encoded again, with these, when a row is first read. Pickles as a list of the rows.
    """

    def __init__(
        self,
        num_rows: int,
        n_sequences: int,
        encode: Callable[..., Encoding],
        options: CallOptions,
        tokens_of: Callable[[int, list[int]], list[str]],
    ) -> None:
        self._num_rows, self._n_sequences = num_rows, n_sequences
        self._encode, self._options, self._tokens_of = encode, options, tokens_of

    @cached_property
    def _fields(self) -> dict[str, list[Any]]:
        columns = Columns(self._encode(return_offsets=True), self._options)
        return {name: columns.lists(field) for name, field in FIELDS.items()}

    def _row(self, place: int) -> RowEncoding:
        fields = {name: rows[place] for name, rows in self._fields.items()}
        for name in ("word_ids", "sequence_ids"):
            fields[name] = [None if number < 0 else number for number in fields[name]]
        read_tokens = partial(self._tokens_of, place, fields["ids"])
        return RowEncoding(fields, self._n_sequences, read_tokens)

    def __len__(self) -> int:
        return self._num_rows

    @overload
    def __getitem__(self, index: int) -> RowEncoding: ...
    @overload
    def __getitem__(self, index: slice) -> list[RowEncoding]: ...
    def __getitem__(self, index: int | slice) -> RowEncoding | list[RowEncoding]:
        places = range(self._num_rows)[index]
        return self._row(places) if isinstance(places, int) else list(map(self._row, places))

    def __reduce__(self) -> tuple[type[list[RowEncoding]], tuple[list[RowEncoding]]]:
        return list, ([*self],)
