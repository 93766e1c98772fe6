"""Measures a case: gate first, then interleaved rounds of time, then peak memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from benchmarks.measuring.load import other_cores, snapshot
from benchmarks.measuring.runner import CandidateError, LocalRunner, Runner
from benchmarks.measuring.timing import Percentiles, Sample, percentiles
from benchmarks.measuring.worker import FreshRunner, WorkerRunner, run_in_worker

if TYPE_CHECKING:
    from benchmarks.measuring.case import Candidate, Case, Role, Settings, Verdict
    from benchmarks.measuring.memory import Peak

MIN_ROUNDS = 5
# In an isolated case a peer whose call takes seconds, and this many times as long as the fastest
# one's in the first round, takes no part in the others.
SLOW, SLOW_MS = 4.0, 1000.0
Status = Literal["measured", "gate failed", "failed", "skipped", "left out"]
Watcher = Callable[[str], None]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one candidate. There are times only if ``status`` is ``measured``.

    ``other_cores``: the mean number of cores that other processes used during the rounds.
    ``ceilings``: the machine's peak rates, the higher of two measurements each.
    """

    candidate: str
    role: Role
    status: Status
    reason: str | None = None
    settings: Settings = field(default_factory=dict)
    verdict: Verdict | None = None
    samples: tuple[Sample, ...] = ()
    peak: Peak | None = None
    other_cores: float | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def wall_ms(self) -> Percentiles:
        """Percentiles of the wall time of a call, in milliseconds."""
        return percentiles([sample.wall_ms for sample in self.samples])

    @property
    def cpu_ms(self) -> Percentiles:
        """Percentiles of the CPU time of a call, all threads together, in milliseconds."""
        return percentiles([sample.cpu_ms for sample in self.samples])


@dataclass(kw_only=True, eq=False)
class _Contender:
    candidate: Candidate
    settings: Settings
    runner: Runner
    verdict: Verdict
    samples: list[Sample] = field(default_factory=list)


def measure(
    case: Case,
    *,
    threads: int,
    rounds: int | None = None,
    smoke: bool = False,
    watch: Watcher = lambda _message: None,
) -> list[Measurement]:
    """Measure every candidate of a case side by side.

    Each candidate is built, warmed up and checked by the gate; only those that pass are timed.
    Every round takes one sample of each candidate, and starts with another one than the round
    before, so that drift of the machine affects all candidates alike. Returns one measurement per
    candidate, in the case's order: skipped ones with the reason, failed ones with the gate's.

    ``smoke`` skips tuning and permits fewer than ``MIN_ROUNDS`` rounds. Otherwise fewer raise
    ``ValueError``.
    """
    num_rounds = case.rounds if rounds is None else rounds
    if num_rounds < (1 if smoke else MIN_ROUNDS):
        raise ValueError(f"{num_rounds} rounds are too few; at least {MIN_ROUNDS} are needed")
    results: dict[str, Measurement] = {}
    contenders: list[_Contender] = []
    before = _look_up(case, watch)
    try:
        for candidate in case.candidates:
            # Tuning would take longer than the rest of a smoke run.
            tried = replace(candidate, tune=None) if smoke else candidate
            admitted = _admit(case, tried, threads, watch)
            if isinstance(admitted, Measurement):
                results[candidate.name] = admitted
            else:
                contenders.append(admitted)
        results |= _take_rounds(contenders, num_rounds, watch, drop_slow=case.isolated)
    finally:
        for contender in contenders:
            contender.runner.close()
    after = _look_up(case, watch)
    ceilings = {what: max(before.get(what, 0.0), rate) for what, rate in (before | after).items()}
    return [replace(results[candidate.name], ceilings=ceilings) for candidate in case.candidates]


def _look_up(case: Case, watch: Watcher) -> dict[str, float]:
    """Measure the machine's peak rates for the case; one that cannot be measured is left out."""
    found = {}
    for what, ceiling in case.ceilings.items():
        watch(f"looking for the ceiling of {what}")
        try:
            found[what] = ceiling()
        except (CandidateError, RuntimeError) as error:
            watch(f"the ceiling of {what} cannot be measured: {error}")
    return found


def _admit(
    case: Case, candidate: Candidate, threads: int, watch: Watcher
) -> Measurement | _Contender:
    """Build, tune and warm up a candidate, and check its output by the gate.

    Returns the measurement of one that was skipped or failed, else the candidate ready to time.
    """
    failed = Measurement(candidate=candidate.name, role=candidate.role, status="failed")
    if candidate.unavailable is not None:
        return replace(failed, status="skipped", reason=candidate.unavailable)
    runner: Runner | None = None
    settings: Settings = {}
    try:
        if candidate.tune is not None:
            watch(f"tuning {candidate.name}")
            settings = run_in_worker(candidate.tune, threads, candidate.python)
        watch(f"checking {candidate.name}")
        if case.isolated and case.fresh:
            runner = FreshRunner(candidate, settings, threads)
        elif case.isolated or candidate.python is not None:
            runner = WorkerRunner(candidate, settings, threads, single=case.single)
        else:
            runner = LocalRunner(
                candidate,
                settings,
                case.device,
                single=case.single,
                shared=True,
                host_time=case.host_time,
            )
        verdict = case.gate(runner.warm_up())
    except CandidateError as error:
        if runner is not None:
            runner.close()
        return replace(failed, settings=settings, reason=str(error))
    if verdict.passed:
        return _Contender(candidate=candidate, settings=settings, runner=runner, verdict=verdict)
    runner.close()
    return replace(
        failed, settings=settings, status="gate failed", reason=verdict.reason, verdict=verdict
    )


def _take_rounds(
    contenders: Sequence[_Contender], num_rounds: int, watch: Watcher, *, drop_slow: bool
) -> dict[str, Measurement]:
    broken: dict[str, tuple[Status, str]] = {}
    before = snapshot()
    for number, order in enumerate(rotations(contenders, num_rounds), start=1):
        for contender in order:
            name = contender.candidate.name
            if name in broken:
                continue
            watch(f"round {number} of {num_rounds}: {name}")
            try:
                contender.samples.append(contender.runner.sample())
            except CandidateError as error:
                broken[name] = "failed", str(error)
        if number == 1 and drop_slow:
            broken |= _slow(contenders)
    others = other_cores(before)
    return {
        c.candidate.name: _conclude(c, broken.get(c.candidate.name), others) for c in contenders
    }


def _slow(contenders: Sequence[_Contender]) -> dict[str, tuple[Status, str]]:
    """Return the peers too slow for further rounds to change the comparison, with the reason."""
    peers = [c for c in contenders if c.candidate.role == "peer" and c.samples]
    least = min((peer.samples[0].wall_ms for peer in peers), default=0.0)
    return {
        peer.candidate.name: (
            "left out",
            f"a call took {peer.samples[0].wall_ms / 1e3:.1f} s in the first round, over "
            f"{SLOW:g} times the fastest peer's {least / 1e3:.1f} s",
        )
        for peer in peers
        if not peer.candidate.keep_slow and peer.samples[0].wall_ms > max(SLOW * least, SLOW_MS)
    }


def _conclude(
    contender: _Contender, failure: tuple[Status, str] | None, others: float | None
) -> Measurement:
    peak: Peak | None = None
    if failure is None:
        try:
            peak = contender.runner.peak()
        except CandidateError as error:
            failure = "failed", str(error)
    status, reason = failure or ("measured", None)
    return Measurement(
        candidate=contender.candidate.name,
        role=contender.candidate.role,
        status=status,
        reason=reason,
        settings=contender.settings,
        verdict=contender.verdict,
        samples=tuple(contender.samples) if failure is None else (),
        peak=peak,
        other_cores=others,
    )


def rotations(items: Sequence[Item], num_rounds: int) -> Iterator[list[Item]]:
    """Yield the order of the items in each round, which starts one item later every time."""
    for number in range(num_rounds):
        first = number % len(items) if items else 0
        yield [*items[first:], *items[:first]]


def best_peer(measurements: Sequence[Measurement]) -> Measurement | None:
    """Return the measured peer with the smallest median time."""
    peers = [m for m in measurements if m.role == "peer" and m.status == "measured"]
    return min(peers, key=lambda m: m.wall_ms.p50, default=None)
