"""Entities and their F1 equal seqeval's in both conventions, on 10,000 drawn rows of tags."""

from __future__ import annotations

import random

import pytest
import seqeval.metrics
from seqeval.scheme import IOB2

from encoder_engine.errors import InputError
from encoder_engine.metrics.entities import Convention, Entity, entities, entity_scores

TAGS = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG"]


def draw_rows(seed: int, count: int) -> list[list[str]]:
    rng = random.Random(seed)
    return [rng.choices(TAGS, k=rng.randrange(9)) for _ in range(count)]


@pytest.mark.parametrize("convention", ["conlleval", "strict"])
def test_scores_are_seqevals(convention: Convention) -> None:
    gold = draw_rows(1, 10_000)
    rng = random.Random(2)
    predicted = [[tag if rng.random() < 0.7 else rng.choice(TAGS) for tag in row] for row in gold]
    keywords = {"mode": "strict", "scheme": IOB2} if convention == "strict" else {}
    found = entity_scores(gold, predicted, convention)
    for name in ("precision", "recall", "f1"):
        score = getattr(seqeval.metrics, f"{name}_score")
        expected = score(gold, predicted, zero_division=0, **keywords)
        # The quotients differ in their last bit.
        assert getattr(found[""], name) == pytest.approx(expected, abs=1e-15)
    by_type = seqeval.metrics.classification_report(
        gold, predicted, output_dict=True, zero_division=0, **keywords
    )
    for kind in ("PER", "LOC"):
        assert found[kind].f1 == pytest.approx(by_type[kind]["f1-score"], abs=1e-15)
        assert found[kind].num_gold == by_type[kind]["support"]


@pytest.mark.parametrize(
    ("tags", "conlleval", "strict"),
    [
        ("I-PER I-PER O", [Entity("PER", 0, 2)], []),
        ("B-PER I-LOC", [Entity("PER", 0, 1), Entity("LOC", 1, 2)], [Entity("PER", 0, 1)]),
        ("B-PER B-PER I-PER", [Entity("PER", 0, 1), Entity("PER", 1, 3)], None),
        ("O O", [], None),
        ("", [], None),
    ],
)
def test_entities_by_hand(tags: str, conlleval: list[Entity], strict: list[Entity] | None) -> None:
    row = tags.split()
    assert entities(row) == conlleval
    assert entities(row, "strict") == (conlleval if strict is None else strict)


def test_unequal_rows_and_other_tags_are_refused() -> None:
    with pytest.raises(InputError, match="row 1 has 2 words and 1 predicted tags") as caught:
        entity_scores([[], ["O", "O"]], [[], ["O"]])
    assert caught.value.row == 1
    with pytest.raises(InputError, match="word 1 has the tag 'S-PER'"):
        entities(["O", "S-PER"])
