"""Reads the targets from their table, ``targets.tsv``: a row each, tabs between the columns.

``answered_by`` names a function of ``quantities.py``, perhaps with whom it compares:
``times_peer(torch eager)``. Reasons are qualitative; figures are in LOG.md.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from benchmarks.targets import quantities
from benchmarks.targets.target import Target

TABLE = Path(__file__).with_name("targets.tsv")
_LONG_RUN = ("again", "trend")
_FRONT_DOOR = ("installed_mb", "minutes_to_run", "minutes_to_test")
# Quantities that are functions of a run; the others make one.
_PLAIN = ("memory_over_best", "microseconds_a_text", "share_of_limit")


def all_targets() -> list[Target]:
    """Read every target, in the order of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
        return [_target(row) for row in rows]


def _target(row: dict[str, str]) -> Target:
    return Target(
        group=row["group"],
        what=row["what"],
        wanted=row["wanted"],
        case=row["case"],
        gpu=row["gpu"],
        unmeasured=row["unmeasured"],
        reason=row["reason"],
        at_least=float(row["at_least"]) if row["at_least"] else None,
        at_most=float(row["at_most"]) if row["at_most"] else None,
        threads=int(row["threads"]) if row["threads"] else None,
        isa=row["isa"] or None,
        **_answer(row["answered_by"]),
    )


def _answer(answered_by: str) -> dict[str, Any]:
    """Find the function that answers a target, and the field of the target to set."""
    if not answered_by:
        return {}
    name, _, compared = answered_by.partition("(")
    function = getattr(quantities, name)
    if name in _LONG_RUN:
        return {"long_run": function}
    if name in _FRONT_DOOR:
        return {"front_door": function}
    if name in _PLAIN:
        return {"quantity": function}
    return {"quantity": function(compared.removesuffix(")")) if compared else function()}
