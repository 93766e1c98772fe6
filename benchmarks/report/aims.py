"""Compares targets with results: first missed ones, then met ones, then unknown ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.records.results import fuller_run
from benchmarks.records.runs import broken, disturbed, measured
from benchmarks.records.words import count, day, listed
from benchmarks.report.page import Fold, Section, Table
from benchmarks.report.tables import BUSY
from benchmarks.targets.table import all_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.front_doors import FrontDoor
    from benchmarks.records.resident import Resident
    from benchmarks.records.runs import Run
    from benchmarks.report.page import Block, Mark
    from benchmarks.targets.quantities import Reached
    from benchmarks.targets.target import Target

State = Literal["missed", "met", "not measured"]
HEADER = ["", "target", "wanted", "reached", "beside", "of the limit", "on", "day", "why"]
MARKS: dict[State, Mark] = {"missed": "loss", "met": "win", "not measured": "unknown"}
_NO_GPU = "no GPU has run it"
_NO_RUN = "its case has not been run yet"


@dataclass(frozen=True, kw_only=True)
class Where:
    """The machine, and the day where it was recorded."""

    device: str
    day: str = ""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A target compared with the newest run of one device."""

    target: Target
    state: State
    why: str
    reached: Reached | None = None
    where: Where | None = None


def hold(
    target: Target,
    runs: Sequence[Run],
    residents: Sequence[Resident] = (),
    front_doors: Sequence[FrontDoor] = (),
) -> list[Held]:
    """Compare a target with the newest run of each device. ``runs``: all that are recorded.

    If there is no run, returns a single entry that says so.
    """
    unknown = Held(target=target, state="not measured", why=_NO_RUN)
    if target.long_run is not None:
        reached = [(target.long_run(one), Where(device=one.device)) for one in residents]
        return [_hold_reached(target, *one) for one in reached] or [unknown]
    if target.front_door is not None:
        reached = [
            (target.front_door(one), Where(device=one.device, day=one.time_utc[:10]))
            for one in front_doors
        ]
        return [_hold_reached(target, *one) for one in reached] or [unknown]
    if target.quantity is None:
        why = f"not measured by the suite: {target.unmeasured}"
        return [Held(target=target, state="not measured", why=why)]
    found = target.find_runs(runs)
    if not found:
        why = _NO_GPU if target.gpu else _NO_RUN
        return [Held(target=target, state="not measured", why=why)]
    return [_hold_run(target, run, runs) for run in found]


def _hold_run(target: Target, run: Run, runs: Sequence[Run]) -> Held:
    """Compare a target with one run; a wrong result of the engine is a miss."""
    where = Where(device=run[0].device, day=day(run[0]))
    reached = target.answer(run)
    if reached is None:
        failed = next(iter(broken(run)), None)
        if failed is not None:
            why = failed.reason or failed.status
            return Held(target=target, state="missed", why=why, where=where)
        why = "whom it is compared with has no figure in the newest run"
        return Held(target=target, state="not measured", why=why, where=where)
    state, why = _judge(target, reached)
    before = fuller_run(run, runs)
    if before is not None:
        skipped = {r.candidate for r in run if r.status == "skipped"}
        absent = sorted({r.candidate for r in measured(before, "peer")} & skipped)
        best = target.answer(before)
        unknown = best is not None and best.peer in absent
        if unknown and state == "met":
            state = "not measured"
        missing = f"{listed(absent)} took no part, unlike before"
        why = "; ".join(
            filter(None, (why, missing + (", the best then among them" if unknown else "")))
        )
    if disturbed(run, BUSY):
        why = "; ".join(filter(None, (why, "measured on a busy machine")))
    return Held(target=target, state=state, why=why, reached=reached, where=where)


def _hold_reached(target: Target, reached: Reached, where: Where) -> Held:
    state, why = _judge(target, reached)
    return Held(target=target, state=state, why=why, reached=reached, where=where)


def _judge(target: Target, reached: Reached) -> tuple[State, str]:
    if target.is_met(reached.value):
        return "met", ""
    return "missed", target.reason or "not known yet"


def target_section(
    runs: Sequence[Run],
    residents: Sequence[Resident] = (),
    front_doors: Sequence[FrontDoor] = (),
) -> Section:
    """Show missed and met targets; fold unknown ones. ``runs``: all that are recorded."""
    by_target = [hold(target, runs, residents, front_doors) for target in all_targets()]
    states = [next(s for s in MARKS if any(one.state == s for one in held)) for held in by_target]
    reading = (
        f"Of {count(len(states), 'target')} that were set beforehand, {states.count('met')} are "
        f"met, {states.count('missed')} are missed on some machine, and "
        f"{states.count('not measured')} have no measurement yet."
    )
    by_state = {s: [one for held in by_target for one in held if one.state == s] for s in MARKS}
    missed, met, unknown = by_state["missed"], by_state["met"], by_state["not measured"]
    blocks: list[Block] = []
    if missed:
        marks = dict.fromkeys(range(len(missed)), MARKS["missed"])
        blocks.append(Table(header=HEADER, rows=[row(one) for one in missed], marks=marks))
    if met:
        marks = dict.fromkeys(range(len(met)), MARKS["met"])
        table = Table(header=HEADER, rows=[row(one) for one in met], marks=marks)
        blocks.append(Fold(title=f"Met: {len(met)}, machine by machine", blocks=[table]))
    if unknown:
        header = ["part", "target", "wanted", "why there is no figure"]
        rows = [[one.target.group, one.target.what, one.target.wanted, one.why] for one in unknown]
        title = f"Not measured yet: {len(unknown)}"
        blocks.append(Fold(title=title, blocks=[Table(header=header, rows=rows)]))
    return Section(title="Targets", reading=reading, blocks=blocks)


def row(held: Held) -> list[str]:
    """Return the table row of one target."""
    target, reached = held.target, held.reached
    return [
        held.state,
        target.what,
        target.wanted,
        "" if reached is None else reached.words,
        "" if reached is None else reached.peer,
        "" if reached is None else reached.limit,
        "" if held.where is None else held.where.device,
        "" if held.where is None else held.where.day,
        held.why,
    ]
