"""The targets beside what was reached: misses first, then what is met, then what is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.report.page import Fold, Section, Table
from benchmarks.report.runs import disturbed
from benchmarks.report.tables import BUSY
from benchmarks.report.words import count, day
from benchmarks.targets import all_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.quantities import Reached
    from benchmarks.report.page import Block, Mark
    from benchmarks.report.runs import Run
    from benchmarks.resident import Resident
    from benchmarks.target import Target

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
    """A target held against the newest run that can answer it."""

    target: Target
    state: State
    why: str
    reached: Reached | None = None
    where: Where | None = None


def hold(target: Target, runs: Sequence[Run], residents: Sequence[Resident] = ()) -> Held:
    """Compare; a wrong result of ours is a miss."""
    if target.long_run is not None:
        return _hold_long_run(target, target.long_run, residents)
    if target.quantity is None:
        why = f"not measured by the suite: {target.unmeasured}"
        return Held(target=target, state="not measured", why=why)
    run = target.find_run(runs)
    if run is None:
        why = _NO_GPU if target.on_gpu else _NO_RUN
        return Held(target=target, state="not measured", why=why)
    where = Where(device=run[0].device, day=day(run[0]))
    reached = target.answer(run)
    if reached is None:
        failed = next((r for r in run if r.role == "ours" and r.status != "measured"), None)
        if failed is not None and failed.status in ("failed", "gate failed"):
            why = failed.reason or failed.status
            return Held(target=target, state="missed", why=why, where=where)
        why = "whom it is compared with has no figure in the newest run"
        return Held(target=target, state="not measured", why=why, where=where)
    state, why = _judge(target, reached)
    if disturbed(run, BUSY):
        why = "; ".join(filter(None, (why, "measured on a busy machine")))
    return Held(target=target, state=state, why=why, reached=reached, where=where)


def _hold_long_run(
    target: Target, answer: Callable[[Resident], Reached], residents: Sequence[Resident]
) -> Held:
    """Judge the machine that did worst."""
    if not residents:
        return Held(target=target, state="not measured", why=_NO_RUN)
    reached, device = max(((answer(r), r.device) for r in residents), key=lambda p: p[0].value)
    state, why = _judge(target, reached)
    return Held(target=target, state=state, why=why, reached=reached, where=Where(device=device))


def _judge(target: Target, reached: Reached) -> tuple[State, str]:
    if target.is_met(reached.value):
        return "met", ""
    return "missed", target.reason or "not known yet"


def target_section(runs: Sequence[Run], residents: Sequence[Resident] = ()) -> Section:
    """Put misses in plain sight, and fold what nothing is known of."""
    held = [hold(target, runs, residents) for target in all_targets()]
    by_state = {state: [one for one in held if one.state == state] for state in MARKS}
    missed, met, unknown = by_state["missed"], by_state["met"], by_state["not measured"]
    reading = (
        f"Of {count(len(held), 'target')} that were set beforehand, {len(met)} are met, "
        f"{len(missed)} are missed, and {len(unknown)} have no measurement yet."
    )
    blocks: list[Block] = []
    if missed:
        marks = dict.fromkeys(range(len(missed)), MARKS["missed"])
        blocks.append(Table(header=HEADER, rows=[row(one) for one in missed], marks=marks))
    if met:
        marks = dict.fromkeys(range(len(met)), MARKS["met"])
        table = Table(header=HEADER, rows=[row(one) for one in met], marks=marks)
        blocks.append(Fold(title=f"Met: {count(len(met), 'target')}", blocks=[table]))
    if unknown:
        header = ["part", "target", "wanted", "why there is no figure"]
        rows = [[one.target.group, one.target.what, one.target.wanted, one.why] for one in unknown]
        title = f"Not measured yet: {count(len(unknown), 'target')}"
        blocks.append(Fold(title=title, blocks=[Table(header=header, rows=rows)]))
    return Section(title="Targets", reading=reading, blocks=blocks)


def row(held: Held) -> list[str]:
    """Write one target."""
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
