"""Books become documents: no licence, no hard line breaks, chapters where they are wanted."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from encoder_engine.cli import main
from encoder_engine.data.books import chapters_of, paragraphs_of, read_books, without_licence
from encoder_engine.data.shards import Corpus
from encoder_engine.inputs.readers import open_inputs
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """A Title

by Somebody

CHAPTER I

It was a dark
night.  The wind
blew.

"Who is there?"


CHAPTER THE SECOND

The end.
"""
HEADERS = [
    ("", ""),
    (
        "The Project Gutenberg eBook of A Title\n\nfree of charge\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK A TITLE ***\n\n",
        "\n*** END OF THE PROJECT GUTENBERG EBOOK A TITLE ***\n\nthe full licence\n",
    ),
    (
        "***START OF THE PROJECT GUTENBERG ETEXT***\nmore\n"
        "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n",
        "\nEnd of the Project Gutenberg Etext of A Title\n",
    ),
]


@pytest.mark.parametrize(("before", "after"), HEADERS, ids=["none", "new", "old"])
def test_licences_are_left_out(before: str, after: str) -> None:
    kept = without_licence((before + TEXT + after).splitlines())
    assert "\n".join(kept).strip() == TEXT.strip()


def test_lines_become_paragraphs_and_headings_begin_chapters() -> None:
    paragraphs = list(paragraphs_of(TEXT.splitlines()))
    assert paragraphs[3] == "It was a dark night. The wind blew."
    chapters = list(chapters_of(paragraphs))
    assert [chapter[0] for chapter in chapters] == ["A Title", "CHAPTER I", "CHAPTER THE SECOND"]
    assert [part for chapter in chapters for part in chapter] == paragraphs
    listed = ["CHAPTER I", "CHAPTER II", "Chapter 3. The Storm", "Text.", "Part of the crew left."]
    assert list(chapters_of(listed)) == [listed]
    assert list(chapters_of([])) == []


@pytest.mark.parametrize("books", ["whole", "chapters"])
def test_a_corpus_of_books_has_a_document_for_each(
    books: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    before, after = HEADERS[1]
    (folder / "a.txt").write_text(before + TEXT + after, "utf-8")
    (folder / "b.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (folder / "c.txt").write_text(f"{before}\n{after}", "utf-8")
    # An empty file of a folder ended the run.
    (folder / "d.txt").touch()
    out = tmp_path / "corpus"
    command = ["prepare", str(folder), "--books", books, "--vocab-size", "120"]
    assert main([*command, "-o", str(out), "-q"]) == 0
    corpus = Corpus.open(out)
    assert corpus.num_documents == (2 if books == "whole" else 6)
    tokenizer = Tokenizer.from_pretrained(out / "tokenizer")
    text = tokenizer.decode([int(token) for token in corpus.shards[0].tokens])
    assert "gutenberg" not in text
    assert "licence" not in text
    assert len(list(read_books(open_inputs([str(folder)]), chapters=books == "chapters"))) == (
        corpus.num_documents
    )
    other = {"whole": "chapters", "chapters": "whole"}[books]
    assert main([*command[:3], other, *command[4:], "-o", str(out), "-q"]) == 1
    (tmp_path / "d.jsonl").write_text('{"text": "a"}\n', "utf-8")
    capsys.readouterr()
    assert (
        main(["prepare", str(tmp_path / "d.jsonl"), *command[2:], "-o", str(tmp_path / "x")]) == 2
    )
    assert "reads .txt files" in capsys.readouterr().err
