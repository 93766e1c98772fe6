"""Handles BIO tags: recognises the scheme, lists its labels, and repairs gold tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import InputError, MendedRowsWarning
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from encoder_engine.inputs.records import Record

__all__ = ["bio_labels", "entity_types", "is_bio", "mend_bio", "warn_of_mended"]

OUTSIDE = "O"


def is_bio(tags: Iterable[str]) -> bool:
    """Return whether all tags are O, B-type or I-type, and at least one is not O."""
    distinct = set(tags) - {OUTSIDE}
    return bool(distinct) and all(tag[:2] in ("B-", "I-") and tag[2:] for tag in distinct)


def entity_types(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the entity types in BIO tags, in alphabetical order."""
    return tuple(sorted({tag[2:] for tag in tags if tag != OUTSIDE}))


def bio_labels(types: Sequence[str]) -> tuple[str, ...]:
    """Return the BIO tags of entity types: O, B- of each type, I- of each type."""
    return (OUTSIDE, *(f"B-{kind}" for kind in types), *(f"I-{kind}" for kind in types))


def mend_bio(record: Record, tags: list[str], *, strict: bool) -> tuple[list[str], int]:
    """Return tags in which every entity begins with B-, and the number of changed tags.

    An I- tag that continues no entity of its type begins one, as in IOB1 and in conlleval.
    ``strict``: raise :class:`RowError` for such a tag.
    """
    mended = list(tags)
    changed = 0
    for place, tag in enumerate(tags):
        before = mended[place - 1] if place else OUTSIDE
        if tag.startswith("I-") and before[2:] != tag[2:]:
            if strict:
                record.refuse(
                    f"word {place} has the tag {tag!r} after {before!r}; an entity begins with "
                    f"'B-{tag[2:]}': mend it, or read the rows without strict"
                )
            mended[place] = f"B-{tag[2:]}"
            changed += 1
    return mended, changed


def warn_of_mended(counts: Sequence[int]) -> None:
    """Warn of tags that :func:`mend_bio` repaired; ``counts``: their number in each row."""
    total = sum(counts)
    if total:
        rows = sum(count > 0 for count in counts)
        warn_caller(
            MendedRowsWarning(
                f"{total} entities of {rows} rows begin with I-, as in IOB1; their first tag was "
                "read as B-. strict refuses them",
                num_mended=total,
            )
        )


def check_types(types: Sequence[str]) -> None:
    """Raise :class:`InputError` if there is no entity type."""
    if not types:
        raise InputError(
            "the training rows have no entity: every tag is O; check the column of tags"
        )
