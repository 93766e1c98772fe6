"""Reads entity spans from tag sequences and computes their F1, by two conventions.

``"conlleval"``: as the script of CoNLL-2000 reads tags. An entity begins at B-, and also at an I-
after O or after another type, so IOB1 and illegal IOB2 are read too. ``"strict"``: IOB2 only. An
entity begins at B- and continues over I- of the same type; an I- without a B- is not an entity.

The two can differ by whole points of F1 on the same predictions: always report the convention.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Convention", "Entity", "EntityScores", "entities", "entity_scores"]

Convention = Literal["conlleval", "strict"]


class Entity(NamedTuple):
    """An entity in a row of tags: words ``start`` to ``stop - 1``, with its type."""

    type: str
    start: int
    stop: int


class EntityScores(NamedTuple):
    """Micro-averaged scores of entities, shares from 0 to 1; 0 where nothing is right.

    ``num_gold``, ``num_predicted``, ``num_right``: numbers of entities; one is right if its type,
    first and last word agree.
    """

    precision: float
    recall: float
    f1: float
    num_gold: int
    num_predicted: int
    num_right: int


def entities(tags: Sequence[str], convention: Convention = "conlleval") -> list[Entity]:
    """List the entities of a row of tags ``O``, ``B-type`` and ``I-type``, in order.

    Raises :class:`InputError` for another tag.
    """
    found: list[Entity] = []
    start, kind = 0, ""
    for place, tag in enumerate((*tags, "O")):
        mark, dash, type_ = tag.partition("-")
        if tag != "O" and not (mark in ("B", "I") and dash and type_):
            raise InputError(f"word {place} has the tag {tag!r}; tags are O, B-type and I-type")
        if mark == "I" and kind == type_:
            continue
        if kind:
            found.append(Entity(kind, start, place))
        begins = mark == "B" or (mark == "I" and convention == "conlleval")
        start, kind = place, type_ if begins else ""
    return found


def entity_scores(
    gold: Iterable[Sequence[str]],
    predicted: Iterable[Sequence[str]],
    convention: Convention = "conlleval",
) -> dict[str, EntityScores]:
    """Score predicted rows of tags against gold rows, by entity type; ``""``: all types together.

    Raises :class:`InputError` for different numbers of rows or words, and for an invalid tag.
    """
    counts: dict[str, Counter[str]] = {"": Counter()}
    gold_rows, predicted_rows = list(gold), list(predicted)
    if len(gold_rows) != len(predicted_rows):
        raise InputError(
            f"there are {len(gold_rows)} gold rows and {len(predicted_rows)} predictions"
        )
    for row, (right, given) in enumerate(zip(gold_rows, predicted_rows, strict=True)):
        if len(right) != len(given):
            raise InputError(
                f"row {row} has {len(right)} words and {len(given)} predicted tags", row=row
            )
        wanted, found = set(entities(right, convention)), set(entities(given, convention))
        for name, some in (("gold", wanted), ("predicted", found), ("right", wanted & found)):
            for entity in some:
                counts.setdefault(entity.type, Counter())[name] += 1
                counts[""][name] += 1
    return {kind: _scores(counts[kind]) for kind in sorted(counts)}


def _scores(count: Counter[str]) -> EntityScores:
    gold, predicted, right = count["gold"], count["predicted"], count["right"]
    return EntityScores(
        precision=right / max(predicted, 1),
        recall=right / max(gold, 1),
        f1=2 * right / max(gold + predicted, 1),
        num_gold=gold,
        num_predicted=predicted,
        num_right=right,
    )
