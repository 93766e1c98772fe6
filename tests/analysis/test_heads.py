"""Heads: statistics over a corpus equal those of the weights, kinds, relations, the verb."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.analysis.edges import EdgeSet, read_edges
from encoder_engine.analysis.head_relations import (
    RelationScore,
    points_over_offset,
    score_relations,
)
from encoder_engine.analysis.heads import kinds_of, measure_heads
from encoder_engine.analysis.pruning import cut_heads
from encoder_engine.pages.drawings import draw_grid

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject
    from tests.analysis.conftest import Run

SENTENCES = [["the", "good", "film"], ["a", "bad", "plot", "the", "plot"], ["not"]]
MARKS = "(),.\u201c\u201d"
MARKED = [
    ["the", "film", "(", "good", ")", "."],
    ["not", ",", "\u201c", "bad", "plot", "\u201d", "the", "film"],
]
# A score sums the products of a head's 16 places, and a mean the shares of up to 16 tokens; both
# sides round each of them.
ROUNDING = 2 * (16 + 16) * float(np.finfo(np.float32).eps)


def row_values(
    row: npt.NDArray[np.float64], query: int, ids: list[int], marks: set[int], counts: Counter[int]
) -> dict[str, float]:
    """Return what a head's means are taken of, of one query; special tokens are at both ends."""
    last = len(row) - 1
    best = int(row.argmax())
    least = min(counts[token] for token in ids[1:last])
    return {
        "maximum": row.max(),
        "entropy": -sum(share * np.log(share) for share in row),
        "evenness": -100 * sum(share * np.log(share) for share in row) / np.log(len(row)),
        "distance": sum(share * abs(key - query) for key, share in enumerate(row)),
        "previous": 100 * row[query - 1],
        "itself": 100 * row[query],
        "following": 100 * row[query + 1],
        "first": 100 * row[0],
        "special": 100 * (row[0] + row[last]),
        "punctuation": 100 * sum(share for n, share in zip(ids, row, strict=True) if n in marks),
        "rare": 100.0 * (0 < best < last and counts[ids[best]] == least),
    }


@pytest.mark.parametrize(("name", "sentences"), [("subject", SENTENCES), ("byte_level", MARKED)])
def test_a_heads_means_are_those_of_its_weights(
    request: pytest.FixtureRequest, name: str, sentences: list[list[str]]
) -> None:
    subject: Subject = request.getfixturevalue(name)
    texts = [" ".join(words) for words in sentences]
    encoding = subject.tokenizer.encode_batch(texts, return_offsets=True)
    batch = encoding.to_packed("cpu")
    with torch.no_grad():
        output = subject.encoder(batch, output_attentions=True)
    rows = [encoding.ids[start:stop].tolist() for start, stop in pairwise(encoding.cu_seqlens)]
    counts = Counter(token for row in rows for token in row)
    spans = [encoding.offsets[start:stop].tolist() for start, stop in pairwise(encoding.cu_seqlens)]
    marks = {
        token
        for text, row, places in zip(texts, rows, spans, strict=True)
        for token, (start, stop) in zip(row, places, strict=True)
        if text[start:stop].strip() and not text[start:stop].strip().strip(MARKS)
    }
    # Of the brackets, quotation marks, comma and point that are words each.
    assert len(marks) == len({word for words in sentences for word in words} & set(MARKS))
    for summary in measure_heads(subject, sentences):
        found: list[dict[str, float]] = []
        offsets: list[int] = []
        for number, ids in enumerate(rows):
            weights = output.attentions[summary.layer][number, summary.head, : len(ids), : len(ids)]
            # The first and the last token are special, and no queries.
            for query in range(1, len(ids) - 1):
                row = weights[query].double().numpy()
                found.append(row_values(row, query, ids, marks, counts))
                offsets.append(int(row.argmax()) - query)
        for field in found[0]:
            mean = float(np.mean([values[field] for values in found]))
            assert getattr(summary, field) == pytest.approx(mean, rel=ROUNDING), field
        most = Counter(offsets).most_common(1)[0][1]
        assert summary.offset_share == pytest.approx(100 * most / len(offsets))
        assert offsets.count(summary.offset) == most


def test_the_means_do_not_depend_on_the_batches(subject: Subject) -> None:
    whole = measure_heads(subject, SENTENCES)
    single = measure_heads(subject, SENTENCES, batch_tokens=1)
    for one, other in zip(whole, single, strict=True):
        assert one.offset == other.offset
        assert one.entropy == pytest.approx(other.entropy, rel=ROUNDING)


@pytest.mark.parametrize(
    ("kind", "field", "least"),
    [
        ("positional", "offset_share", 90.0),
        ("special", "special", 50.0),
        ("rare", "rare", 50.0),
        ("broad", "evenness", 90.0),
    ],
)
def test_kinds_follow_their_thresholds(
    subject: Subject, kind: str, field: str, least: float
) -> None:
    none: dict[str, Any] = {"offset_share": 0.0, "special": 0.0, "rare": 0.0, "evenness": 0.0}
    one = replace(measure_heads(subject, SENTENCES)[0], **none)
    at_least, below = none | {field: least}, none | {field: np.nextafter(least, 0.0)}
    assert kinds_of(one) == ()
    assert kinds_of(replace(one, **at_least)) == (kind,)
    assert kinds_of(replace(one, **below)) == ()
    assert kinds_of(one, 10.0) == ("syntactic",)
    assert kinds_of(one, np.nextafter(10.0, 0.0)) == ()


def test_relations_are_scored_beside_the_best_offset(subject: Subject, conllu: Path) -> None:
    edges = read_edges(conllu, "deprel")
    scores = score_relations(subject, edges, least=1)
    assert {score.relation for score in scores} == {"det", "dep"}
    # Every head is the word before.
    assert [(score.offset, score.offset_accuracy) for score in scores] == [(-1, 100.0)] * 2
    with torch.no_grad():
        words = edges.sentences[0]
        encoding = subject.tokenizer.encode_batch([words], is_split_into_words=True)
        output = subject.encoder(encoding.to_packed("cpu"), output_attentions=True)
    weights = torch.stack(output.attentions)[:, 0, :, 1:-1, 1:-1].clone()
    weights.diagonal(dim1=2, dim2=3).fill_(-1)
    (edge,) = (edge for edge in edges.edges[:1])
    (dependent, _), (head, _) = edge.spans
    right = (weights[:, :, dependent].argmax(2) == head) | (
        weights[:, :, head].argmax(2) == dependent
    )
    (score,) = score_relations(subject, EdgeSet(edges.sentences[:1], [edge]), least=1)
    assert score.accuracies == tuple(map(tuple, (100.0 * right.double()).tolist()))
    assert score.accuracy == np.max(score.accuracies)
    assert score.accuracies[score.layer][score.head] == score.accuracy


def test_relations_of_a_model_with_a_cut_head_are_those_of_its_other_heads(
    subject: Subject, conllu: Path
) -> None:
    edges = read_edges(conllu, "deprel")
    whole = score_relations(subject, edges, least=1)
    encoder = deepcopy(subject.encoder)
    # Nothing is computed from the last layer's heads that another head reads.
    cut_heads(encoder, [(1, 0)])
    pruned = score_relations(replace(subject, encoder=encoder), edges, least=1)
    for before, after in zip(whole, pruned, strict=True):
        assert after.accuracies == (before.accuracies[0], before.accuracies[1][1:])
        assert after.accuracies[after.layer][after.head] == after.accuracy


def test_every_head_ten_points_over_the_offset_is_syntactic() -> None:
    def score(*accuracies: tuple[float, ...]) -> RelationScore:
        return RelationScore("det", 50, 0, 0, True, 90.0, -1, 60.0, accuracies)

    points = points_over_offset([score((90.0, 71.0), (69.0, 0.0)), score((50.0, 50.0), (80.0, 1))])
    assert points == {(0, 0): 30.0, (0, 1): 11.0, (1, 0): 20.0, (1, 1): -59.0}
    assert points_over_offset([]) == {}


@pytest.mark.filterwarnings("ignore")
def test_the_verb_lists_every_head(tiny: Path, conllu: Path, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("heads", "--model", tiny, conllu, "--device", "cpu", "--html", page, "--json")
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    assert [(one["layer"], one["head"]) for one in found["heads"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    for score in found["relations"]:
        assert [len(heads) for heads in score["accuracies"]] == [2, 2]
    assert {score["relation"] for score in found["relations"]} == {"det", "dep"}
    assert page.read_text().count("<svg") == 3
    few = run("heads", "--model", tiny, conllu, "--device", "cpu", "--least", "1000")
    assert "0 relations have at least 1000 pairs" in few.output
    assert "lower --least" in few.output


def test_a_grid_of_many_heads_is_drawn_whole() -> None:
    # A page is 800 wide, and the heads after the 27th lay beyond it.
    names = [str(head) for head in range(32)]
    drawn = draw_grid([[0.5] * 32], ["layer 0"], names, [names])
    found = re.search(r'viewBox="0 0 (\d+) ', drawn)
    assert found is not None
    cells = re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)"', drawn)
    assert len(cells) == 32
    assert max(int(x) + int(width) for x, width in cells) <= int(found[1])
