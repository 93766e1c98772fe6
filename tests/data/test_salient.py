"""Names and dates are found, marked in a corpus, and masked as spans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.cli import main
from encoder_engine.data.salient import clip_spans, find_salient, mark_tokens, merge_spans
from encoder_engine.data.samples import cut_sentences
from encoder_engine.data.shards import Corpus, Document, write_shard
from encoder_engine.errors import ConfigError, CorpusError
from encoder_engine.text import Tokenizer
from encoder_engine.training import DataRecipe, ObjectivesRecipe
from encoder_engine.training.pretraining.model_builder import build_objectives
from tests.data.corpora import VOCABULARY

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [
    (
        "On July 4, 1776 the Continental Congress met in Philadelphia.",
        ["July 4, 1776", "Continental Congress", "Philadelphia"],
    ),
    ("Napoleon was there.", []),
    ("The King of Spain and J. R. Smith left.", ["King of Spain and J. R. Smith"]),
    ("In the 1990s he saw O'Neill.", ["1990s", "O'Neill"]),
    ("It rained on 2024-01-31 and on 3. 4.", ["2024-01-31"]),
    ("\u201cYes,\u201d said \u00c9mile on 12th of March.", ["\u00c9mile", "12th of March"]),
    (
        "We left \u0141\u00f3d\u017a for \u0391\u03b8\u03ae\u03bd\u03b1 today.",
        ["\u0141\u00f3d\u017a", "\u0391\u03b8\u03ae\u03bd\u03b1"],
    ),
    (
        "In \u041a\u0438\u0457\u0432 he met \u0160. \u017d\u00e1k.",
        ["\u041a\u0438\u0457\u0432", "\u0160. \u017d\u00e1k"],
    ),
    ("She has an iPhone Pro Max at 20 kHz, and mRNA.", ["iPhone Pro Max"]),
    ("I think that It was 12345 or x1850.", []),
    ("", []),
]


@pytest.mark.parametrize(("sentence", "expected"), EXAMPLES)
def test_names_and_dates_are_found(sentence: str, expected: list[str]) -> None:
    assert [sentence[start:end] for start, end in find_salient(sentence)] == expected


def test_spans_are_merged_and_found_in_their_sentences() -> None:
    assert merge_spans([(4, 6), (0, 2), (5, 9), (3, 3)]) == [(0, 2), (4, 9)]
    sentences = [(0, 6), (8, 14)]
    assert clip_spans([(0, 2), (4, 10)], sentences) == [(0, 2), (4, 6), (8, 10)]


def test_tokens_that_touch_a_span_are_marked() -> None:
    offsets = np.array([[0, 2], [2, 4], [5, 6], [6, 9]])
    assert mark_tokens(offsets, [(1, 3), (8, 9)]).tolist() == [1, 2, 0, 1]
    # Two spans in one token: it is the first one's.
    assert mark_tokens(offsets, [(0, 1), (1, 6)]).tolist() == [1, 1, 2, 0]


def marked_words(corpus: Corpus, tokenizer: Tokenizer) -> list[str]:
    """Return the salient spans of a corpus as texts."""
    found: list[list[int]] = []
    for shard in corpus.shards:
        assert shard.salient is not None
        for token, mark in zip(shard.tokens, shard.salient, strict=True):
            if mark == 1:
                found.append([])
            if mark:
                found[-1].append(int(token))
    return [tokenizer.decode(ids) for ids in found]


def test_a_corpus_is_marked_by_rule_or_by_a_column(tmp_path: Path) -> None:
    texts = [
        "He went to Paris. Then, in 1850, Victor Hugo wrote a book about Paris.",
        "nothing here at all, nothing at all",
    ]
    rows = [{"text": texts[0], "spans": [[3, 7], [69, 70]]}, {"text": texts[1], "spans": []}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    source = [str(tmp_path / "t.jsonl"), "--vocab-size", "120", "--quiet"]
    for name, options, expected in (
        ("rule", ["--salient"], ["paris", "1850", "victor hugo", "paris"]),
        ("column", ["--salient-column", "spans"], ["went", "."]),
    ):
        out = tmp_path / name
        assert main(["prepare", *source, *options, "--output", str(out)]) == 0
        corpus = Corpus.open(out)
        assert marked_words(corpus, Tokenizer.from_pretrained(out / "tokenizer")) == expected
        batch = cut_sentences(corpus, 12).batch(np.arange(2))
        assert batch.salient is not None
        assert not batch.salient[batch.special].any()
        # The same command goes on with the same corpus; another one is another corpus.
        assert main(["prepare", *source, *options, "--output", str(out)]) == 0
        assert main(["prepare", *source, "--output", str(out)]) == 1
    recipe = ObjectivesRecipe(unit="salient")
    assert build_objectives(recipe, DataRecipe(), corpus)
    with pytest.raises(ConfigError, match=r"data\.form pairs, which has no marks"):
        build_objectives(recipe, DataRecipe(form="pairs"), corpus)


@pytest.mark.parametrize("spans", ["x", [[1]], [[0, 99]], [[2, 2]], [["a", "b"]], 3, [[0, True]]])
def test_spans_that_are_no_ranges_are_refused(
    spans: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"text": "some text", "spans": spans}) + "\n", "utf-8")
    command = ["prepare", str(path), "--salient-column", "spans", "--vocab-size", "120"]
    assert main([*command, "--output", str(tmp_path / "c")]) == 1
    assert "t.jsonl, line 1: spans[0] must be [start, end]" in capsys.readouterr().err


def test_a_corpus_without_marks_is_refused_and_marks_must_fit(tmp_path: Path) -> None:
    ids = np.arange(10, 14)
    entry = write_shard(tmp_path, 0, [Document([ids])], VOCABULARY)
    assert "salient" not in entry.sha256
    marked = Document([ids], 0, [np.zeros(4, np.uint8)])
    with pytest.raises(CorpusError, match="document 1 has no salience marks"):
        write_shard(tmp_path, 0, [marked, Document([ids])], VOCABULARY)
    with pytest.raises(CorpusError, match="document 0 needs exactly one salience mark"):
        write_shard(tmp_path, 0, [Document([ids], 0, [np.zeros(3, np.uint8)])], VOCABULARY)
