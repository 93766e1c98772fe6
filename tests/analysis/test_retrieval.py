"""Retrieval by an embedder: translations by cosine and margin, candidates, and the verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.analysis.retrieval import (
    NEIGHBOURS,
    Candidates,
    read_candidates,
    read_translations,
    score_candidates,
    score_translations,
)
from encoder_engine.errors import RowError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tests.analysis.conftest import Run

    Vectors = npt.NDArray[np.float64]


def unit(vectors: Vectors) -> Vectors:
    found: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found


def test_translations_are_found_as_by_a_double_loop() -> None:
    drawn = np.random.default_rng(0).normal(size=(40, 8))
    noisy = drawn + 1.2 * np.random.default_rng(1).normal(size=(40, 8))
    # A hub: near to everything.
    noisy[7] = drawn.mean(0) * 10
    table = {f"a{n}": v for n, v in enumerate(drawn)} | {f"b{n}": v for n, v in enumerate(noisy)}
    pairs = [(f"a{n}", f"b{n}") for n in range(40)]
    found = score_translations(lambda texts: np.stack([table[t] for t in texts]), pairs)
    cosines = unit(drawn) @ unit(noisy).T
    margins = np.zeros_like(cosines)
    for a in range(40):
        for b in range(40):
            near_a = np.sort(cosines[a])[-NEIGHBOURS:].mean()
            near_b = np.sort(cosines[:, b])[-NEIGHBOURS:].mean()
            margins[a, b] = cosines[a, b] / ((near_a + near_b) / 2)
    for scores, forward, backward in (
        (cosines, found.forward, found.backward),
        (margins, found.margin_forward, found.margin_backward),
    ):
        expected = [100 * (scores.argmax(axis) == np.arange(40)).mean() for axis in (1, 0)]
        assert [forward.mean, backward.mean] == expected
    assert found.forward.mean not in (0.0, 100.0)


def test_a_text_that_equals_the_translation_is_right() -> None:
    table = {"a": [1.0, 0.0], "b": [0.9, 0.1], "x": [1.0, 0.0]}
    pairs = [("a", "x"), ("b", "x")]
    found = score_translations(lambda texts: np.array([table[t] for t in texts]), pairs)
    assert found.forward.mean == 100.0
    assert found.backward.mean == 50.0


def test_a_ranking_of_relevant_documents_alone_is_left_out_apart() -> None:
    table = {"q": [1.0, 0.0], "near": [1.0, 0.1], "far": [0.1, 1.0], "r": [0.0, 1.0]}
    queries = [
        Candidates("q", ["near", "far"], [0.0, 1.0]),
        Candidates("r", ["near", "far"], [1.0, 1.0]),
    ]

    def encode(texts: list[str]) -> Vectors:
        return np.array([table[text] for text in texts])

    everything, both = score_candidates(encode, encode, queries)
    assert (everything.num_queries, both.num_queries, both.num_left_out) == (2, 1, 1)
    assert both.mean_reciprocal_rank == 0.5
    assert everything.mean_reciprocal_rank == 0.75


def test_rows_are_read_by_group_and_query(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text('por\tum "filme\ta film\nell\tx\ty\npor\tbom\tgood\n')
    header = ["lang", "text", "english"]
    found = read_translations([str(path)], ("text", "english"), group="lang", header=header)
    assert found == {"por": [('um "filme', "a film"), ("bom", "good")], "ell": [("x", "y")]}
    first = read_translations([str(path)], ("text", "english"), header=header, most=1)
    assert first == {"": [('um "filme', "a film")]}
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "q", "document": "d", "label": -1}\n')
    with pytest.raises(RowError, match="label must be a relevance of at least 0"):
        read_candidates([str(rows)], query="query", document="document", label="label")


@pytest.mark.filterwarnings("ignore")
def test_the_verb_scores_both_kinds_of_rows(tiny: Path, run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    values = [
        {"query": q, "document": d, "label": int(q in d)}
        for q in ("good", "bad")
        for d in ("a good film", "a bad plot")
    ]
    rows.write_text("\n".join(map(json.dumps, values)) + "\n")
    result = run("retrieval", "--model", tiny, rows, "--device", "cpu", "--json")
    assert result.code == 0, result.errors
    assert json.loads(result.output)["ranking"]["both"]["num_queries"] == 2
    same = ("retrieval", "--model", tiny, rows, "--device", "cpu", "--translations")
    found = json.loads(run(*same, "document,document", "--json").output)
    assert found["translations"][""]["forward"]["mean"] == 100.0
    assert "two columns" in run(*same, "document").errors
    named = run(*same, "query,document", "--group-column", "query", "--groups", "ugly")
    assert "no group 'ugly'" in named.errors
    # These had no effect without the options that they belong to.
    alone = (("group-column", "query"), ("groups", "q"), ("header", "a,b"), ("rows", 1))
    for option, value in alone:
        ignored = run("retrieval", "--model", tiny, rows, "--device", "cpu", f"--{option}", value)
        assert ignored.code == 2
        assert f"--{option} is of translations" in ignored.errors
    assert "name it by --group-column" in run(*same, "query,document", "--groups", "ugly").errors
