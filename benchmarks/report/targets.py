"""Compares targets with results: first missed ones, then met ones, then unknown ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.records.results import fuller_run
from benchmarks.records.runs import broken, disturbed, measured
from benchmarks.records.words import count, day, listed
from benchmarks.report.tables import BUSY, markdown_table
from benchmarks.targets.table import FRONT_DOOR, LONG_RUN, all_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.device_records import FrontDoor, Resident
    from benchmarks.records.runs import Run
    from benchmarks.targets.table import Reached, Target

State = Literal["missed", "met", "not measured"]
STATES: tuple[State, ...] = ("missed", "met", "not measured")
HEADER = ["", "target", "wanted", "reached", "beside", "of the limit", "on", "day", "why"]


@dataclass(frozen=True, kw_only=True)
class Held:
    """A target compared with the newest run of one device."""

    target: Target
    state: State
    why: str
    reached: Reached | None = None
    device: str = ""
    day: str = ""


def hold(
    target: Target,
    runs: Sequence[Run],
    residents: Sequence[Resident] = (),
    front_doors: Sequence[FrontDoor] = (),
) -> list[Held]:
    """Compare a target with the newest run of each device. ``runs``: all that are recorded.

    If there is no run, returns a single entry that says so.
    """
    if target.unmeasured:
        why = f"not measured by the suite: {target.unmeasured}"
        return [Held(target=target, state="not measured", why=why)]
    if target.quantity in LONG_RUN:
        held = [_judge(target, target.answer(r), device=r.device) for r in residents]
    elif target.quantity in FRONT_DOOR:
        held = [
            _judge(target, target.answer(visit), device=visit.device, day=visit.time_utc[:10])
            for visit in front_doors
        ]
    else:
        held = [_hold_run(target, run, runs) for run in target.find_runs(runs)]
    why = "no GPU has run it" if target.gpu else "its case has not been run yet"
    return held or [Held(target=target, state="not measured", why=why)]


def _hold_run(target: Target, run: Run, runs: Sequence[Run]) -> Held:
    """Compare a target with one run; a wrong result of the engine is a miss."""
    device, on_day = run[0].device, day(run[0])
    reached = target.answer(run)
    failed = next(iter(broken(run)), None)
    if reached is None and failed is not None:
        why = failed.reason or failed.status
        return Held(target=target, state="missed", why=why, device=device, day=on_day)
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
    if disturbed(run, BUSY):
        notes.append("measured on a busy machine")
    return _judge(target, reached, notes=notes, unsure=unsure, device=device, day=on_day)


def _judge(
    target: Target,
    reached: Reached | None,
    *,
    device: str,
    day: str = "",
    notes: Sequence[str] = (),
    unsure: bool = False,
) -> Held:
    """Compare a value with the target; ``unsure``: it may be missed though the value says met."""
    state: State
    if reached is None:
        state, why = "not measured", "whom it is compared with has no figure in the newest run"
    elif target.is_met(reached.value):
        state, why = "not measured" if unsure else "met", ""
    else:
        state, why = "missed", target.reason or "not known yet"
    why = "; ".join(filter(None, (why, *notes)))
    return Held(target=target, state=state, why=why, reached=reached, device=device, day=day)


def target_lines(
    runs: Sequence[Run],
    residents: Sequence[Resident] = (),
    front_doors: Sequence[FrontDoor] = (),
) -> list[str]:
    """Return a table of the missed, the met and the unknown. ``runs``: all that are recorded."""
    by_target = [hold(target, runs, residents, front_doors) for target in all_targets()]
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
