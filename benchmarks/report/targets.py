"""Compares targets with results, and lists missed, met and unmeasured ones, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.records.results import fuller_run
from benchmarks.records.runs import broken, disturbed, measured
from benchmarks.records.words import count, day, listed
from benchmarks.report.tables import BUSY, markdown_table
from benchmarks.targets.table import all_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.runs import Run
    from benchmarks.targets.table import Reached, Target

State = Literal["missed", "met", "not measured"]
STATES: tuple[State, ...] = ("missed", "met", "not measured")
HEADER = ["", "target", "wanted", "reached", "beside", "of the limit", "on", "day", "why"]


@dataclass(frozen=True, kw_only=True)
class Held:
    """The outcome of a target on one device: met, missed or not measured, and why.

    It is that of the device's newest run of the target's case.
    """

    target: Target
    state: State
    why: str
    reached: Reached | None = None
    device: str = ""
    day: str = ""


def hold(target: Target, runs: Sequence[Run]) -> list[Held]:
    """Compare a target with the newest run of each device; ``runs``: all that are recorded.

    Where no run can answer it, the result is one :class:`Held` that says so.
    """
    if target.unmeasured:
        why = f"not measured by the suite: {target.unmeasured}"
        return [Held(target=target, state="not measured", why=why)]
    held = [_hold_run(target, run, runs) for run in target.find_runs(runs)]
    why = "no GPU has run it" if target.gpu else "its case has not been run yet"
    return held or [Held(target=target, state="not measured", why=why)]


def _hold_run(target: Target, run: Run, runs: Sequence[Run]) -> Held:
    """Compare a target with one run; a wrong result of the engine is a miss."""
    reached = target.answer(run)
    failed = next(iter(broken(run)), None)
    notes = []
    # The best peer of an earlier run may be faster than all that took part in this one.
    before, unsure = fuller_run(run, runs), False
    if reached is not None and before is not None:
        skipped = {r.candidate for r in run if r.status == "skipped"}
        absent = sorted({r.candidate for r in measured(before, "peer")} & skipped)
        best = target.answer(before)
        unsure = best is not None and best.peer in absent
        then = ", the best then among them" if unsure else ""
        notes.append(f"{listed(absent)} took no part, unlike before{then}")
    if reached is not None and disturbed(run, BUSY):
        notes.append("measured on a busy machine")
    state: State = "missed"
    why = ""
    if reached is None and failed is not None:
        why = failed.reason or failed.status
    elif reached is None:
        state, why = "not measured", "whom it is compared with has no figure in the newest run"
    elif target.is_met(reached.value):
        state = "not measured" if unsure else "met"
    else:
        why = target.reason or "not known yet"
    why = "; ".join(filter(None, (why, *notes)))
    return Held(
        target=target, state=state, why=why, reached=reached, device=run[0].device, day=day(run[0])
    )


def target_lines(runs: Sequence[Run]) -> list[str]:
    """Return a Markdown table of all targets; ``runs``: all that are recorded."""
    by_target = [hold(target, runs) for target in all_targets()]
    worst = [next(s for s in STATES if any(h.state == s for h in held)) for held in by_target]
    lines = [
        f"Of {count(len(worst), 'target')} that were set beforehand, {worst.count('met')} are "
        f"met, {worst.count('missed')} are missed on some machine, and "
        f"{worst.count('not measured')} have no measurement yet."
    ]
    for state in STATES:
        rows = [_row(h) for held in by_target for h in held if h.state == state]
        if rows:
            lines += ["", f"### {state.capitalize()}: {len(rows)}, machine by machine", ""]
            lines += markdown_table(HEADER, rows)
    return lines


def _row(held: Held) -> list[str]:
    target, reached = held.target, held.reached
    values = ("", "", "") if reached is None else (reached.words, reached.peer, reached.limit)
    return [
        f"**{held.state}**" if held.state == "missed" else held.state,
        f"{target.group}: {target.what}",
        target.wanted,
        *values,
        held.device,
        held.day,
        held.why,
    ]
