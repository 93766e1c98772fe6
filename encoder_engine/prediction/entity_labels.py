"""Reads the labels of a tagger: what each says of an entity's beginning, end and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EntityLabel", "read_labels"]

# The first letters of BIOES, BILOU and BMES beside B and I: whether an entity begins, and ends.
_LETTERS = {
    "M": (False, False),
    "E": (False, True),
    "L": (False, True),
    "S": (True, True),
    "U": (True, True),
}


class EntityLabel(NamedTuple):
    """The type of an entity, and whether the label begins or ends one; else it continues one."""

    type: str
    begins: bool = False
    ends: bool = False


def read_labels(labels: Sequence[str]) -> tuple[EntityLabel, ...]:
    """Read BIO, IOB1, BIOES, BILOU, BMES and plain labels.

    An I- that continues no entity of its type begins one, as in IOB1. E-, L-, M-, S- and U- are
    letters of a scheme if there is a B- of the same type. A plain label is a type as it stands,
    also where it has a hyphen.
    """
    there = set(labels)
    found = []
    for label in labels:
        letter, hyphen, kind = label[:1], label[1:2], label[2:]
        if hyphen != "-" or not kind:
            found.append(EntityLabel(label))
        elif letter in ("B", "I"):
            found.append(EntityLabel(kind, begins=letter == "B"))
        elif letter in _LETTERS and f"B-{kind}" in there:
            found.append(EntityLabel(kind, *_LETTERS[letter]))
        else:
            found.append(EntityLabel(label))
    return tuple(found)
