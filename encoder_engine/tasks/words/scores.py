"""Scores of sentences' predicted tags, in percent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from encoder_engine.metrics.classification import confusion_matrix, macro_f1
from encoder_engine.metrics.entities import Convention, entities, entity_scores
from encoder_engine.tasks.labels import confusion_details

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Rows = Sequence[Sequence[str]]

__all__ = [
    "ENTITY_SCORES",
    "TAG_SCORES",
    "entity_details",
    "plain_details",
    "row_f1",
    "scores_of_entities",
    "scores_of_tags",
]

CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
_PARTS = ("f1", "precision", "recall")
# The names of the scores that scores_of_entities and scores_of_tags return.
ENTITY_SCORES = (*(f"{one}_{part}" for one in CONVENTIONS for part in _PARTS), "accuracy")
TAG_SCORES = ("accuracy", "macro_f1")


def scores_of_entities(gold: Rows, predicted: Rows) -> dict[str, float]:
    """Return precision, recall and F1 of entities, as conlleval and strictly; and word accuracy."""
    found = {}
    for convention in CONVENTIONS:
        whole = entity_scores(gold, predicted, convention)[""]
        for name in _PARTS:
            found[f"{convention}_{name}"] = 100.0 * float(getattr(whole, name))
    return found | {"accuracy": _accuracy(gold, predicted)}


def scores_of_tags(gold: Rows, predicted: Rows, labels: Sequence[str]) -> dict[str, float]:
    """Return accuracy and macro F1 of the words' tags."""
    confusion = confusion_matrix(*_classes(gold, predicted, labels), num_classes=len(labels))
    return {"accuracy": _accuracy(gold, predicted), "macro_f1": 100.0 * macro_f1(confusion)}


def row_f1(gold: Rows, predicted: Rows, *, entities: bool) -> npt.NDArray[np.float64]:
    """Return each sentence's F1 of entities (1 without any) or accuracy of tags, from 0 to 1."""
    if not entities:
        return np.array(
            [_accuracy([one], [two]) / 100.0 for one, two in zip(gold, predicted, strict=True)]
        )
    return np.array([_f1(one, two) for one, two in zip(gold, predicted, strict=True)])


def entity_details(gold: Rows, predicted: Rows) -> dict[str, Any]:
    """Return the scores of each entity type, counted as conlleval does, for the HTML report."""
    scores = entity_scores(gold, predicted)
    return {"entities": {kind: score._asdict() for kind, score in scores.items() if kind}}


def plain_details(gold: Rows, predicted: Rows, labels: Sequence[str]) -> dict[str, Any]:
    """Return the confusion matrix of the tags, for the HTML report."""
    return confusion_details(*_classes(gold, predicted, labels), labels)


def _f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    wanted, found = set(entities(gold)), set(entities(predicted))
    total = len(wanted) + len(found)
    return 2.0 * len(wanted & found) / total if total else 1.0


def _classes(
    gold: Rows, predicted: Rows, labels: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    places = {label: number for number, label in enumerate(labels)}
    one, two = (
        np.array([places[tag] for row in rows for tag in row], np.int64)
        for rows in (gold, predicted)
    )
    return one, two


def _accuracy(gold: Rows, predicted: Rows) -> float:
    right = sum(
        one == two
        for row, other in zip(gold, predicted, strict=True)
        for one, two in zip(row, other, strict=True)
    )
    return 100.0 * right / max(sum(len(row) for row in gold), 1)
