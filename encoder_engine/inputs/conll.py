"""Reads words with tags: CoNLL (one word per line, columns, blank lines between) and CoNLL-U.

Some published files are malformed: blank lines of tabs, byte order marks in the middle. They are
read and counted with a warning; ``strict`` refuses them instead.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MendedRowsWarning
from encoder_engine.inputs.lines import decode_line, read_lines
from encoder_engine.inputs.opening import compression_of, open_source, shown_name
from encoder_engine.inputs.records import Record
from encoder_engine.inputs.rows import Columns, Place, Reading
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

__all__ = ["CONLLU_COLUMNS", "CONLL_SUFFIXES", "plain_suffix", "read_conll", "read_conllu"]

# The columns of a CoNLL-U file after the id; files that leave out the last ones are read as well.
CONLLU_COLUMNS = ("words", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
CONLL_SUFFIXES = (".conll", ".conll2003", ".bio", ".iob", ".iob2")
_READING = Reading(columns=Columns(text="words"))
_LONGEST_LINE = 2**20
_MARK = "\ufeff"
_BORDER = "-DOCSTART-"
_LANGUAGE = re.compile(r"[a-z][a-z-]{1,11}:")
_BLANKS = re.compile("[ \t]+")


def plain_suffix(path: str | os.PathLike[str]) -> str:
    """Return a file's suffix in lower case, without a suffix of compression."""
    name = Path(path)
    packed = compression_of(str(path))
    return (name.with_suffix("") if packed else name).suffix.lower()


def read_conll(
    path: str | os.PathLike[str],
    *,
    word_column: int = 0,
    tag_column: int = -1,
    strip_language: bool = False,
    strict: bool = False,
) -> Iterator[Record]:
    """Yield the sentences of a CoNLL file: ``words``, and ``tags`` if there is a second column.

    Columns are separated by tabs where the first line has one, else by blanks; a sentence ends at a
    blank line; lines of -DOCSTART- are left out.

    word_column, tag_column: columns from 0, or from -1 at the end.
    strip_language: remove the language before each word, as ``en:`` in WikiANN.
    strict: refuse blank lines of tabs and stray byte order marks, which are otherwise counted in a
        :class:`MendedRowsWarning` at the end.

    Raises :class:`RowError` for a line with another number of columns, or without a word.
    """
    mended: Counter[str] = Counter()
    sentences = _sentences(path, _make_mend(mended, strict=strict))
    width, tabs = 0, False
    for row, (place, number, lines) in enumerate(sentences):
        words, tags = [], []
        for line_number, line in enumerate(lines, start=number):
            place.number, place.row = line_number, row
            if not width:
                tabs = "\t" in line
            fields = line.split("\t") if tabs else _BLANKS.split(line.strip(" \t"))
            if not width:
                width = _check_columns(place, len(fields), word_column, tag_column)
            if len(fields) != width:
                place.refuse(
                    f"{len(fields)} columns, the lines before have {width}; mend the line, or put "
                    "a blank line between sentences"
                )
            words.append(_word(place, fields[word_column], strip_language=strip_language))
            tags.append(fields[tag_column].strip())
        values: dict[str, Any] = {"words": words}
        if width > 1:
            values["tags"] = tags
        yield Record(values, place.name, number, row)
    _warn(str(path), mended)


def read_conllu(path: str | os.PathLike[str], *, strict: bool = False) -> Iterator[Record]:
    """Yield the sentences of a CoNLL-U file: a list for each of :data:`CONLLU_COLUMNS`.

    Words are syntactic words: lines of several words (1-2) and empty nodes (1.1) are left out.
    Comments such as ``# sent_id = 1`` are columns of their own. A column that is ``_`` throughout a
    sentence is left out, except the words.

    Raises :class:`RowError` for a line that is no token, or that is numbered out of order.
    """
    mended: Counter[str] = Counter()
    for row, (place, number, lines) in enumerate(
        _sentences(path, _make_mend(mended, strict=strict))
    ):
        values: dict[str, Any] = {}
        tokens: list[list[str]] = []
        for line_number, line in enumerate(lines, start=number):
            place.number, place.row = line_number, row
            if line.startswith("#"):
                name, equals, value = line[1:].partition("=")
                if equals:
                    values[name.strip()] = value.strip()
                continue
            fields = line.split("\t")
            if re.fullmatch(r"\d+[-.]\d+", fields[0]):
                continue
            if fields[0] != str(len(tokens) + 1) or len(fields) not in range(2, 11):
                place.refuse(
                    f"expected token {len(tokens) + 1} with 2 to 10 columns between tabs, got "
                    f"{line!r:.60}"
                )
            if tokens and len(fields) != len(tokens[0]) + 1:
                place.refuse(f"{len(fields)} columns, the line before has {len(tokens[0]) + 1}")
            tokens.append(fields[1:])
        if not tokens:
            continue
        for name, column in zip(CONLLU_COLUMNS, zip(*tokens, strict=True), strict=False):
            if name == "words" or set(column) != {"_"}:
                values[name] = list(column)
        yield Record(values, place.name, number, row)
    _warn(str(path), mended)


def _sentences(
    path: str | os.PathLike[str], mend: Callable[[Place, str], None]
) -> Iterator[tuple[Place, int, list[str]]]:
    """Yield for each sentence its position (for messages), its first line's number, its lines.

    mend: called for each malformed line.
    """
    place = Place(shown_name(str(path)), _READING)
    lines: list[str] = []
    first = 0
    with open_source(str(path)) as stream:
        for raw in read_lines(stream, place, _LONGEST_LINE):
            if raw is None:
                place.refuse(f"longer than {_LONGEST_LINE} bytes; a line holds one word")
            line = decode_line(raw, place).rstrip("\r\n")
            if line.startswith(_MARK):
                mend(place, "a byte order mark within the file")
                line = line.removeprefix(_MARK)
            if line and not line.strip(" \t"):
                mend(place, "a line of tabs or spaces alone")
                line = ""
            if line and not line.startswith(_BORDER):
                first = first if lines else place.number
                lines.append(line)
            elif lines:
                yield place, first, lines
                lines = []
    if lines:
        yield place, first, lines


def _make_mend(mended: Counter[str], *, strict: bool) -> Callable[[Place, str], None]:
    """Return a function that counts malformed lines in ``mended``, or with ``strict`` raises."""

    def mend(place: Place, found: str) -> None:
        if strict:
            place.refuse(f"{found}; remove it, or read the file without strict")
        mended[found] += 1

    return mend


def _warn(name: str, mended: Counter[str]) -> None:
    if mended:
        counted = " and ".join(f"{number} times {found}" for found, number in mended.items())
        warn_caller(
            MendedRowsWarning(
                f"{name} has {counted}; marks were left out, and such lines read as blank. strict "
                "refuses them",
                num_mended=mended.total(),
            )
        )


def _check_columns(place: Place, width: int, word_column: int, tag_column: int) -> int:
    for name, column in (("word_column", word_column), ("tag_column", tag_column)):
        if not -width <= column < width:
            place.refuse(f"{width} columns, but {name} is {column}; columns count from 0")
    return width


def _word(place: Place, word: str, *, strip_language: bool) -> str:
    if strip_language:
        found = _LANGUAGE.match(word)
        if found is None:
            place.refuse(
                f"the word {word!r:.60} has no language before it, such as en:; set strip_language "
                "to false"
            )
        word = word[found.end() :]
    if not word:
        place.refuse("the word is empty; remove the line, or write the word")
    return word
