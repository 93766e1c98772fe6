"""The base of tasks on sentences of words: common settings, and the reading of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.inputs.conll import CONLL_SUFFIXES, plain_suffix, read_conll, read_conllu
from encoder_engine.tasks.task import Task

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from encoder_engine.inputs.records import Record

__all__ = ["WordTask"]

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


@dataclass(frozen=True, kw_only=True)
class WordTask(Task[Example, Prediction], Generic[Example, Prediction]):
    """A task on sentences that are given as lists of words.

    ``words``, ``tags``: the columns of lists; in CoNLL-U a field such as ``upos``.
    ``format``: the file format; ``"auto"``: by suffix, where .txt is CoNLL.
    ``word_column``, ``tag_column``, ``strip_language``: see :func:`read_conll`.
    ``strict``: refuse files and tags that would otherwise be repaired, see
    :class:`MendedRowsWarning`.

    Fitted in training: ``spaced``, see :func:`encode_words`; False in models of earlier versions.
    """

    words: str = "words"
    tags: str = "tags"
    format: Literal["auto", "conll", "conllu", "table"] = "auto"
    word_column: int = 0
    tag_column: int = -1
    strip_language: bool = False
    strict: bool = False
    spaced: bool = False

    def records(self, path: str | os.PathLike[str]) -> Iterator[Record] | None:
        """Yield the sentences of a CoNLL or CoNLL-U file; None: the file is a table."""
        suffix, kind = plain_suffix(path), self.format
        if kind == "auto" and suffix == ".conllu":
            kind = "conllu"
        elif kind == "auto" and suffix in (*CONLL_SUFFIXES, ".txt"):
            kind = "conll"
        if kind == "conllu":
            return read_conllu(path, strict=self.strict)
        if kind == "conll":
            return read_conll(
                path,
                word_column=self.word_column,
                tag_column=self.tag_column,
                strip_language=self.strip_language,
                strict=self.strict,
            )
        return None

    def read_words(self, record: Record) -> list[str]:
        """Return the words in a row of a file."""
        words = record.names_of(self.words)
        if not words:
            record.refuse(f"{self.words} is empty; a sentence has at least one word")
        return words

    def read_tags(self, record: Record, num_words: int) -> list[str]:
        """Return the tags in a row of a file, one for each word."""
        tags = record.names_of(self.tags)
        if len(tags) != num_words:
            record.refuse(f"there are {num_words} words and {len(tags)} tags; each word has one")
        return tags
