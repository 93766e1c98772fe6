"""Results as JSON lines, one per candidate and run, appended to ``results/<device>.jsonl``."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.machine import find_commit, find_versions
from benchmarks.measuring.measure import Measurement, best_peer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring.case import Case
    from benchmarks.measuring.machine import Device

FOLDER = Path(__file__).parents[1] / "results"
SCHEMA = 1
# Fewer samples show nothing of a tail.
TAIL_SAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one candidate in one run: all that is needed to interpret its figures later.

    ``run`` is common to the candidates measured side by side. Times are per call; ``samples_ms``
    are the rounds in their order; ``p99_ms`` exists where rounds are many. ``ratio_to_best_peer``
    is the best peer's median time divided by this candidate's: 2.0 is twice as fast. ``peak_of``
    says what ``peak_mib`` counts (``benchmarks/measuring/memory.py``).
    ``other_cores``: the mean number of cores that other processes used; 0 on a quiet machine.
    ``ceilings``: the machine's peak rates, measured before and after the rounds.
    ``fraction_of_limit``: the least time that these rates permit, divided by the median time.
    ``quick``: only a part of the texts, measured by ``python -m benchmarks quick``.
    ``isa`` is what ENCODER_ENGINE_ISA restricted the engine to; None: nothing.
    """

    schema: int = SCHEMA
    run: str
    time_utc: str
    commit: str
    dirty: bool | None
    source: str
    device: str
    device_name: str
    cores: int
    memory_gib: float | None
    instruction_sets: list[str]
    threads: int
    versions: dict[str, str]
    seed: int
    case: str
    fingerprint: str
    amounts: dict[str, int]
    candidate: str
    role: str
    status: str
    reason: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    gate: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    p20_ms: float | None = None
    p50_ms: float | None = None
    p80_ms: float | None = None
    p99_ms: float | None = None
    cpu_p50_ms: float | None = None
    samples_ms: list[float] = field(default_factory=list)
    throughput_per_s: dict[str, float] = field(default_factory=dict)
    peak_mib: float | None = None
    peak_of: str | None = None
    best_peer: str | None = None
    ratio_to_best_peer: float | None = None
    other_cores: float | None = None
    isa: str | None = None
    ceilings: dict[str, float] = field(default_factory=dict)
    fraction_of_limit: float | None = None
    quick: bool = False


def make_results(
    case: Case,
    measurements: Sequence[Measurement],
    *,
    device: Device,
    threads: int,
    quick: bool = False,
) -> list[Result]:
    """Make results of a case's measurements, with the facts of the machine and the checkout."""
    commit = find_commit()
    versions = find_versions(name for c in case.candidates for name in c.libraries)
    for candidate in case.candidates:
        versions |= candidate.versions
    common = Result(
        run=secrets.token_hex(6),
        time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit.name,
        dirty=commit.dirty,
        source=commit.source,
        device=device.slug,
        device_name=device.name,
        cores=device.cores,
        memory_gib=device.memory_gib,
        instruction_sets=list(device.instruction_sets),
        threads=threads,
        versions=versions,
        seed=case.seed,
        case=case.name,
        fingerprint=case.fingerprint,
        amounts=dict(case.amounts),
        candidate="",
        role="",
        status="",
        quick=quick,
        isa=os.environ.get("ENCODER_ENGINE_ISA") or None,
    )
    rival = best_peer(measurements)
    return [dataclasses.replace(common, **_figures(m, case, rival)) for m in measurements]


def _figures(measurement: Measurement, case: Case, rival: Measurement | None) -> dict[str, Any]:
    verdict = measurement.verdict
    figures: dict[str, Any] = {
        "candidate": measurement.candidate,
        "role": measurement.role,
        "status": measurement.status,
        "reason": measurement.reason,
        "settings": dict(measurement.settings),
        "gate": {} if verdict is None else dict(verdict.figures),
        "ceilings": {what: _rounded(rate) for what, rate in measurement.ceilings.items()},
    }
    if measurement.status != "measured":
        return figures
    wall_ms = measurement.wall_ms
    figures |= {
        "rounds": len(measurement.samples),
        "p20_ms": _rounded(wall_ms.p20),
        "p50_ms": _rounded(wall_ms.p50),
        "p80_ms": _rounded(wall_ms.p80),
        "p99_ms": _rounded(wall_ms.p99) if len(measurement.samples) >= TAIL_SAMPLES else None,
        "cpu_p50_ms": _rounded(measurement.cpu_ms.p50),
        "samples_ms": [_rounded(sample.wall_ms) for sample in measurement.samples],
        "throughput_per_s": {k: _rounded(1e3 * n / wall_ms.p50) for k, n in case.amounts.items()},
    }
    if measurement.ceilings:
        least_ms = max(1e3 * case.amounts[k] / rate for k, rate in measurement.ceilings.items())
        figures["fraction_of_limit"] = _rounded(least_ms / wall_ms.p50)
    if measurement.other_cores is not None:
        figures["other_cores"] = round(measurement.other_cores, 2)
    if measurement.peak is not None:
        figures |= {"peak_mib": round(measurement.peak.mib, 1), "peak_of": measurement.peak.of}
    if rival is not None:
        figures["best_peer"] = rival.candidate
        figures["ratio_to_best_peer"] = _rounded(rival.wall_ms.p50 / wall_ms.p50)
    return figures


def _rounded(value: float) -> float:
    """Round to five digits: more is noise."""
    return float(f"{value:.5g}")


def append(results: Sequence[Result], folder: Path = FOLDER) -> Path:
    """Add lines to the device's file and return its path; earlier lines stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results[0].device}.jsonl"
    lines = [json.dumps(dataclasses.asdict(r), sort_keys=False, allow_nan=False) for r in results]
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return path


def read(folder: Path = FOLDER) -> Iterator[Result]:
    """Read every result of every device, in the order they were written.

    Raises ``ValueError`` naming the file and line that is not one.
    """
    names = {f.name for f in dataclasses.fields(Result)}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            where = f"{path.name}, line {number}"
            try:
                values = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where} is not JSON: {error}") from error
            if values.get("schema") != SCHEMA or set(values) - names:
                raise ValueError(f"{where} is not of schema {SCHEMA}")
            yield Result(**values)


def all_runs(results: Sequence[Result]) -> list[list[Result]]:
    """Group results by run, oldest first."""
    runs: dict[str, list[Result]] = {}
    for result in results:
        runs.setdefault(result.run, []).append(result)
    return sorted(runs.values(), key=lambda lines: lines[0].time_utc)


def latest_runs(results: Sequence[Result]) -> list[list[Result]]:
    """Return the newest run of each work: device, instruction sets, case and threads."""
    newest = {work_of(run): run for run in all_runs(results)}
    return [newest[key] for key in sorted(newest)]


def work_of(run: Sequence[Result]) -> tuple[str, str, str, int]:
    """Return what a run measured: device, restriction of instruction sets, case and threads."""
    return run[0].device, run[0].isa or "", run[0].case, run[0].threads


def fuller_run(run: Sequence[Result], runs: Sequence[Sequence[Result]]) -> Sequence[Result] | None:
    """Return the newest earlier run of the same work with peers that this run skipped."""
    skipped = {r.candidate for r in run if r.role == "peer" and r.status == "skipped"}
    for old in sorted(runs, key=lambda run: run[0].time_utc, reverse=True):
        measured = {r.candidate for r in old if r.role == "peer" and r.status == "measured"}
        earlier = old[0].time_utc < run[0].time_utc
        if earlier and work_of(old) == work_of(run) and measured & skipped:
            return old
    return None


def drop_superseded(folder: Path = FOLDER) -> None:
    """Delete all results, except those of each work's newest run and of an earlier, fuller one.

    An earlier run is kept where it measured peers that the newest one skipped.
    """
    results = list(read(folder))
    runs = all_runs(results)
    kept = latest_runs(results)
    fuller = filter(None, (fuller_run(run, runs) for run in kept))
    names = {run[0].run for run in (*kept, *fuller)}
    for path in folder.glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(x for x in lines if json.loads(x)["run"] in names), "utf-8")
