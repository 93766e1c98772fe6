"""Reads word vectors from text files: word2vec's, GloVe's and fastText's.

A line is a word and its numbers, separated by spaces or tabs. word2vec and fastText begin with a
line of two numbers, of words and of features; GloVe does not. The file is read line by line into a
table that grows by half when it is full.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.embedding.static.model import StaticModel, StaticSettings
from encoder_engine.errors import ReadError, RowError
from encoder_engine.inference.static_table import StaticTable
from encoder_engine.inputs.opening import open_source
from encoder_engine.kinds.options import check_positive
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.tokenizer import (
    BertNormalizerSpec,
    SpecialTokenNames,
    TemplatePiece,
    TokenizerSpec,
    WordPieceDecoderSpec,
    WordPieceSpec,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["read_word_vectors", "word_tokenizer"]

UNKNOWN = "[UNK]"
# The prefix of pieces within a word. A table of words has no such pieces, and no text this
# character.
_WITHIN = "\ufdd0"
_LONGEST_WORD = 100
_FIRST_ROWS = 1 << 20


def read_word_vectors(
    path: str | os.PathLike[str],
    *,
    lowercase: bool | None = None,
    max_words: int | None = None,
    normalize: bool = False,
) -> StaticModel:
    """Read a file of word vectors; see :meth:`StaticEmbedder.from_word_vectors`."""
    if max_words is not None:
        check_positive(max_words, "max_words")
    words, rows_VD = _read(Path(path), max_words)
    if lowercase is None:
        lowercase = all(word == word.lower() for word in words)
    vocabulary = {word: number for number, word in enumerate(words)}
    if UNKNOWN not in vocabulary:
        vocabulary[UNKNOWN] = len(words)
        rows_VD = np.concatenate([rows_VD, np.zeros((1, rows_VD.shape[1]), np.float32)])
    return StaticModel(
        table=StaticTable(rows_VD=rows_VD, left_out=vocabulary[UNKNOWN]),
        tokenizer=word_tokenizer(vocabulary, lowercase=lowercase),
        settings=StaticSettings(normalized=normalize, max_length=None, base_model=Path(path).name),
    )


def word_tokenizer(vocabulary: dict[str, int], *, lowercase: bool) -> Tokenizer:
    """Return a tokenizer of whole words: what is between white space and punctuation.

    It is WordPiece without pieces within words: a word is in the vocabulary or unknown.
    """
    model = WordPieceSpec(
        vocab=vocabulary,
        unk_token=UNKNOWN,
        continuing_subword_prefix=_WITHIN,
        max_input_chars_per_word=_LONGEST_WORD,
        normalizer=BertNormalizerSpec(
            clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=lowercase
        ),
    )
    first = TemplatePiece(kind="first", type_id=0)
    spec = TokenizerSpec(
        model=model,
        single=(first,),
        pair=(first, TemplatePiece(kind="second", type_id=0)),
        decoder=WordPieceDecoderSpec(prefix=_WITHIN, cleanup=False),
        special=SpecialTokenNames(unk=UNKNOWN),
    )
    return Tokenizer(spec)


def _read(path: Path, max_words: int | None) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Return a file's words and their vectors [V, D]; of repeated words the first counts."""
    words: dict[str, int] = {}
    table = np.empty((0, 0), dtype=np.float32)
    stated: tuple[int, int] | None = None
    width = 0
    for number, line in _lines(path):
        if number == 1 and (stated := _header(line)) is not None:
            width = stated[1]
            continue
        word, numbers = _split(line, width, path, number)
        if table.shape[1] == 0:
            # A damaged first line may state any number; the table grows where it is too small.
            least = 1023 if stated is None else min(stated[0], max_words or stated[0], _FIRST_ROWS)
            width = len(numbers)
            table = np.empty((least + 1, width), dtype=np.float32)
        if word in words:
            continue
        if len(words) == len(table):
            table = np.concatenate([table, np.empty_like(table[: max(1024, len(table) // 2)])])
        table[len(words)] = _floats(numbers, width, path, number)
        words[word] = number
        if len(words) == max_words:
            break
    if not words:
        raise ReadError(f"{path} holds no word vectors: expected a word and its numbers in a line")
    if stated is not None and max_words is None and number - 1 < stated[0]:
        raise ReadError(
            f"{path} ends after {number - 1} words, its first line states {stated[0]}; copy it "
            "again"
        )
    return list(words), np.ascontiguousarray(table[: len(words)])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers, from 1, without empty ones.

    Raises :class:`RowError` and ReadError.
    """
    with open_source(str(path)) as stream:
        for number, raw in enumerate(iter(stream.readline, b""), start=1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise _refused(path, number, f"is not UTF-8: {error.reason}") from error
            # Words of some files hold no-break spaces: only line ends and spaces are cut.
            line = line.rstrip("\r\n ")
            if line:
                yield number, line


def _header(line: str) -> tuple[int, int] | None:
    """Return the numbers of words and of features if a file's first line states them, else None."""
    parts = line.split(" ")
    if len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts):
        count, width = map(int, parts)
        return (count, width) if count and width else None
    return None


def _split(line: str, width: int, path: Path, number: int) -> tuple[str, list[str]]:
    """Split a line into its word and its numbers, as strings.

    width: how many numbers; 0: unknown. If it is known, a word may contain spaces.
    """
    separator = "\t" if "\t" in line and " " not in line else " "
    parts = line.split(separator)
    if width == 0:
        width = len(parts) - 1
    if len(parts) <= width or width < 1:
        raise _refused(
            path, number, f"has {max(len(parts) - 1, 0)} numbers, expected {max(width, 1)}"
        )
    word = separator.join(parts[:-width])
    if not word:
        raise _refused(path, number, "has no word before its numbers")
    return word, parts[-width:]


def _floats(numbers: list[str], width: int, path: Path, number: int) -> npt.NDArray[np.float32]:
    if len(numbers) != width:
        raise _refused(path, number, f"has {len(numbers)} numbers, expected {width}")
    try:
        found = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        wrong = next((text for text in numbers if not _is_number(text)), numbers[0])
        raise _refused(path, number, f"holds {wrong!r:.40} in place of a number") from error
    if not np.isfinite(found).all():
        raise _refused(path, number, "holds NaN or infinity")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refused(path: Path, number: int, reason: str) -> RowError:
    return RowError(
        f"{path}, line {number} {reason}; copy the file again, or remove the line",
        row=number - 1,
        file=str(path),
        number=number,
        reason=reason,
    )
