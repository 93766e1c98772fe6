"""Figures of docs/analysis.md, beside those of an independent implementation on the same rows.

The references are printed with one digit, so a share may lie half of it away. Words that two senses
are equally near to are decided by the last bits; the page names how many.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.analysis.conftest import Run

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

PRINTED = 0.05 + 1e-9


def values_of(run: Run, *arguments: object) -> Any:
    """Return what a verb prints as JSON."""
    result = run(*arguments, "--device", "cpu", "--json")
    assert result.code == 0, result.errors
    return json.loads(result.output)


# The reference of the nearest sense, and the words of the test that may be decided otherwise.
SENSES = {"hard": (84.7, 1), "line": (78.0, 0), "serve": (88.7, 0)}
STANDARDISED = {"hard": (85.7, 0), "line": (83.3, 2), "serve": (88.7, 0)}


@pytest.mark.parametrize("standardised", [False, True])
def test_senses(run: Run, minilm: Path, shared_data: Path, *, standardised: bool) -> None:
    files = {name: shared_data / f"wsd/lexical_{name}.pos.xml.xz" for name in SENSES}
    corpus = shared_data / "pos/ewt_dev.conllu.xz"
    extra = ("--standardise", corpus) if standardised else ()
    found = values_of(run, "senses", "--model", minilm, *files.values(), *extra)["senses"]
    for name, (reference, words) in (STANDARDISED if standardised else SENSES).items():
        scores = found[str(files[name])]
        bound = PRINTED + 100 * words / scores["num_covered"]
        assert abs(scores["nearest"] - reference) <= bound, name


def test_senses_of_all_words(run: Run, minilm: Path, shared_data: Path) -> None:
    test = shared_data / "wsd/semeval2007.data.xml.xz"
    train = shared_data / "wsd/senseval2.data.xml.xz"
    scores = values_of(run, "senses", "--model", minilm, train, "--test", test)["senses"][str(test)]
    assert (scores["num_covered"], scores["num_words"]) == (182, 455)
    assert abs(scores["nearest"] - 52.2) <= PRINTED + 100 / 182


def test_isotropy(run: Run, minilm: Path, shared_data: Path) -> None:
    layers = values_of(run, "isotropy", "--model", minilm, shared_data / "pos/ewt_dev.conllu.xz")[
        "layers"
    ]
    # The mean of all pairs, as the page has it; the reference sampled pairs.
    means = [0.056, 0.117, 0.132, 0.147, 0.171, 0.222, 0.032]
    assert [round(layer["mean_cosine"], 3) for layer in layers] == means
    assert layers[5]["features"][0] == 223
    assert round(layers[5]["shares"][0]) == 58
    assert layers[6]["num_dead"] == 3


# The best head, its accuracy, and that of the best offset.
RELATIONS = {
    "det": ((2, 8), 77.8, 57.1),
    "nsubj": ((2, 8), 54.8, 37.7),
    "obj": ((2, 0), 70.1, 34.8),
    "case": ((2, 8), 68.0, 37.2),
}


def test_heads(run: Run, minilm: Path, shared_data: Path) -> None:
    found = values_of(run, "heads", "--model", minilm, shared_data / "pos/ewt_dev.conllu.xz")
    scores = {score["relation"]: score for score in found["relations"]}
    for name, (head, accuracy, offset) in RELATIONS.items():
        score = scores[name]
        assert (score["layer"], score["head"]) == head, name
        assert abs(score["accuracy"] - accuracy) <= PRINTED, name
        assert abs(score["offset_accuracy"] - offset) <= PRINTED, name
    positional = [one for one in found["heads"] if "positional" in one["kinds"]]
    assert [(one["layer"], one["head"], one["offset"]) for one in positional] == [(0, 2, -1)]
    assert abs(positional[0]["offset_share"] - 99.98) <= PRINTED / 10


def test_retrieval(run: Run, minilm: Path, shared_data: Path) -> None:
    rows = ("--query-column", "qtext", "--document-column", "atext")
    file = shared_data / "ir/trecqa_dev.csv.xz"
    both = values_of(run, "retrieval", "--model", minilm, file, *rows)["ranking"]["both"]
    assert both["num_queries"] == 65
    assert abs(100 * both["mean_average_precision"] - 80.2) <= PRINTED
    assert abs(100 * both["mean_reciprocal_rank"] - 86.9) <= PRINTED
    columns = ("--header", "lang,text,english", "--translations", "text,english")
    groups = ("--group-column", "lang", "--groups", "por,ell", "--rows", "500")
    file = shared_data / "corpus/tatoeba112.tsv.xz"
    found = values_of(run, "retrieval", "--model", minilm, file, *columns, *groups)["translations"]
    for name, reference in (("por", 11.2), ("ell", 0.6)):
        assert abs(found[name]["forward"]["mean"] - reference) <= PRINTED, name
