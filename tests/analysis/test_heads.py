"""Heads: statistics over a corpus equal those of the weights, kinds, relations, the verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from encoder_engine.analysis.edges import EdgeSet, read_edges
from encoder_engine.analysis.head_relations import score_relations
from encoder_engine.analysis.heads import kinds_of, measure_heads

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.analysis.subject import Subject
    from tests.analysis.conftest import Run

SENTENCES = [["the", "good", "film"], ["a", "bad", "plot", "the", "plot"], ["not"]]
# A score sums the products of a head's 16 places, and a mean the shares of up to 7 tokens; both
# sides round each of them.
ROUNDING = 2 * (16 + 7) * float(np.finfo(np.float32).eps)


def test_a_heads_means_are_those_of_its_weights(subject: Subject) -> None:
    encoding = subject.tokenizer.encode_batch(SENTENCES, is_split_into_words=True)
    batch = encoding.to_packed("cpu")
    with torch.no_grad():
        output = subject.encoder(batch, output_attentions=True)
    # [CLS] first, [SEP] last: the queries are all others.
    for summary in measure_heads(subject, SENTENCES):
        rows = [
            output.attentions[summary.layer][n, summary.head, 1 : length - 1, :length].double()
            for n, length in enumerate(batch.sequences.lengths.tolist())
        ]
        entropy = torch.cat([torch.special.entr(row).sum(1) for row in rows]).mean()
        first = 100 * torch.cat([row[:, 0] for row in rows]).mean()
        special = 100 * torch.cat([row[:, 0] + row[:, -1] for row in rows]).mean()
        assert summary.entropy == pytest.approx(float(entropy), rel=ROUNDING)
        assert summary.first == pytest.approx(float(first), rel=ROUNDING)
        assert summary.special == pytest.approx(float(special), rel=ROUNDING)
        assert summary.punctuation == 0.0
        best = [(row.argmax(1) - torch.arange(1, len(row) + 1)).tolist() for row in rows]
        offsets = np.concatenate(best).tolist()
        assert summary.offset_share == pytest.approx(
            100 * max(offsets.count(n) for n in offsets) / len(offsets)
        )


def test_the_means_do_not_depend_on_the_batches(subject: Subject) -> None:
    whole = measure_heads(subject, SENTENCES)
    single = measure_heads(subject, SENTENCES, batch_tokens=1)
    for one, other in zip(whole, single, strict=True):
        assert one.offset == other.offset
        assert one.entropy == pytest.approx(other.entropy, rel=ROUNDING)


def test_kinds_follow_their_thresholds(subject: Subject) -> None:
    one = measure_heads(subject, SENTENCES)[0]
    assert kinds_of(one)[:1] == (("broad",) if one.evenness >= 90 else ())
    assert "syntactic" in kinds_of(one, 10.0)
    assert "syntactic" not in kinds_of(one, 9.9)


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
    assert score.accuracy == (100.0 if right.any() else 0.0)


@pytest.mark.filterwarnings("ignore")
def test_the_verb_lists_every_head(tiny: Path, conllu: Path, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("heads", tiny, conllu, "--device", "cpu", "--html", page, "--json")
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    assert [(one["layer"], one["head"]) for one in found["heads"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert found["relations"]
    assert page.read_text().count("<svg") == 3
