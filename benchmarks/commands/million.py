"""Embeds a million sentences in one run: ``python -m benchmarks million``.

One process of ``encoder-engine embed`` embeds all of them. After each fifth it is suspended while
sentence-transformers embeds a fifth of a sample, so that drift of the machine affects both alike.
The process's resident memory is recorded from outside.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import psutil

from benchmarks.cases.embedding import SEED, make_gate, minilm_directory, minilm_job
from benchmarks.commands.run_case import open_console
from benchmarks.measuring.case import Candidate, Case, EmbeddingJob, Verdict
from benchmarks.measuring.load import other_cores, snapshot
from benchmarks.measuring.machine import ROOT, find_device
from benchmarks.measuring.measure import Measurement
from benchmarks.measuring.memory import MIB, Peak, process_peak
from benchmarks.measuring.timing import Sample
from benchmarks.measuring.worker import WorkerRunner
from benchmarks.peers import candidate
from benchmarks.peers.sentence_transformers import DEFAULT_BATCH_SIZE, PEER, load_parts
from benchmarks.records import results as records
from benchmarks.records.device_records import Resident, write_resident
from benchmarks.report.tables import footnotes, result_table
from benchmarks.texts.corpus import fingerprint
from benchmarks.texts.sentences import write_sentences
from encoder_engine.vectors.stored_vectors import StoredVectors

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS, THEIRS = "encoder-engine embed", "sentence-transformers"
TEXTS = "sentences.txt"
SHARDS_PER_SLICE = 4
_POLL_SECONDS = 0.02
_WATCH_SECONDS = 0.5


class Run:
    """``encoder-engine embed`` in a process of its own, that can be stopped and watched."""

    def __init__(self, folder: Path, precision: str, shard_rows: int) -> None:
        self.output = folder / "out"
        command = [sys.executable, "-m", "encoder_engine.cli", "embed", str(folder / TEXTS)]
        command += ["--output", str(self.output), "--model", str(minilm_directory()), "--json"]
        command += ["--dtype", precision, "--shard-rows", str(shard_rows)]
        # Seconds of the run, without suspensions, and MiB resident at that time.
        self.resident: list[tuple[float, float]] = []
        # The peak resident memory.
        self.peak: Peak | None = None
        # Moves forward by the length of every suspension.
        self.start = time.perf_counter()
        self._child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._process = psutil.Process(self._child.pid)

    @property
    def seconds(self) -> float:
        """Seconds of the run, without the time in which it was suspended."""
        return time.perf_counter() - self.start

    def cpu_seconds(self) -> float:
        """CPU time of all its threads."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def wait_for(self, name: str) -> None:
        """Watch the run until it has written a file; ``RuntimeError`` where the run ends before."""
        while not (self.output / name).exists():
            if self._child.poll() is not None and not (self.output / name).exists():
                raise RuntimeError(f"the run ended with {self._child.returncode} before {name}")
            self._watch()
            time.sleep(_POLL_SECONDS)

    def stop(self) -> float:
        """Suspend the process; return the time."""
        self._process.suspend()
        return time.perf_counter()

    def go_on(self, stopped: float) -> None:
        """Resume the process, and leave the suspended time out of the measurement."""
        self._process.resume()
        self.start += time.perf_counter() - stopped

    def _watch(self) -> None:
        """Record peak memory and, every few seconds, resident memory, while the process lives."""
        self._keep(process_peak(self._child.pid))
        if self.resident and self.seconds - self.resident[-1][0] < _WATCH_SECONDS:
            return
        with suppress(psutil.Error):
            held = self._process.memory_info().rss
            if held:
                self.resident.append((self.seconds, held / MIB))
                # The kernel's own mark may lag a little, and some systems have none.
                self._keep(Peak(mib=held / MIB, of="process"))

    def _keep(self, seen: Peak | None) -> None:
        if seen is not None and (self.peak is None or seen.mib > self.peak.mib):
            self.peak = seen

    def finish(self) -> dict[str, Any]:
        """Watch until it ends, and return the summary."""
        output = None
        while output is None:
            self._watch()
            with suppress(subprocess.TimeoutExpired):
                output, _ = self._child.communicate(timeout=_POLL_SECONDS)
        if self._child.returncode:
            raise RuntimeError(f"the run ended with {self._child.returncode}")
        summary: dict[str, Any] = json.loads(output)
        return summary

    def close(self) -> None:
        """Kill the process if it still runs, even while suspended."""
        if self._child.poll() is None:
            self._process.resume()
            self._child.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a run: its summary, both measurements, and its resident memory over time.

    ``again``: the summary of the same command once more, which embeds nothing.
    """

    summary: dict[str, Any]
    again: dict[str, Any]
    measurements: tuple[Measurement, Measurement]
    resident: list[tuple[float, float]]


def compare(folder: Path, job: EmbeddingJob, parts: Sequence[range], stride: int) -> Outcome:
    """Compare a run over ``sentences.txt`` with sentence-transformers on the job's texts.

    The job's texts are every ``stride``-th of the file; ``parts``: the indices of each slice.
    """
    theirs = WorkerRunner(
        Candidate(name=THEIRS, role="peer", build=partial(load_parts, job, parts)),
        {},
        job.threads,
    )
    first = replace(job, texts=tuple(job.texts[place] for place in parts[0]))
    gate = make_gate(first, smoke=False)
    shard_rows = len(job.texts) * stride // (len(parts) * SHARDS_PER_SLICE)
    try:
        verdicts = [replace(gate, precision="float32")(theirs.warm_up())]
        with closing(Run(folder, job.precision, shard_rows)) as run:
            ours_samples, their_samples, others = interleave(run, theirs, len(parts))
            summary = run.finish()
        peak = theirs.peak()
    finally:
        theirs.close()
    with closing(Run(folder, job.precision, shard_rows)) as second:
        again = second.finish()
    rows = np.array([place * stride for place in parts[0]])
    verdicts.insert(0, gate(StoredVectors(run.output).take(rows)))
    ours = Measurement(
        candidate=OURS,
        role="ours",
        settings={"precision": job.precision},
        samples=tuple(ours_samples),
        peak=run.peak,
        other_cores=others,
        **_judged(verdicts[0]),
    )
    peer = Measurement(
        candidate=THEIRS,
        role="peer",
        settings={"batch_size": DEFAULT_BATCH_SIZE},
        samples=tuple(their_samples),
        peak=peak,
        other_cores=others,
        **_judged(verdicts[1]),
    )
    return Outcome(summary=summary, again=again, measurements=(ours, peer), resident=run.resident)


def _judged(verdict: Verdict) -> dict[str, Any]:
    status = "measured" if verdict.passed else "gate failed"
    return {"verdict": verdict, "status": status, "reason": verdict.reason}


def interleave(
    run: Run, theirs: WorkerRunner, num_slices: int
) -> tuple[list[Sample], list[Sample], float | None]:
    """Sample the engine and the peer in turns; return both, and the cores that others used."""
    ours_samples, their_samples = [], []
    run.wait_for("_journal.jsonl")
    before, own_seconds = snapshot(), -time.process_time()
    for number in range(1, num_slices + 1):
        start, cpu = run.seconds, run.cpu_seconds()
        run.wait_for(f"part-{number * SHARDS_PER_SLICE - 1:05d}.npy")
        stopped = run.stop()
        seconds, spent = stopped - run.start - start, run.cpu_seconds() - cpu
        ours_samples.append(Sample(wall_ms=1e3 * seconds, cpu_ms=1e3 * spent))
        their_samples.append(theirs.sample())
        own_seconds += spent + their_samples[-1].whole_cpu_ms / 1e3
        run.go_on(stopped)
    return ours_samples, their_samples, other_cores(before, own_seconds + time.process_time())


def make_lines(outcome: Outcome, job: EmbeddingJob, num_slices: int) -> list[records.Result]:
    """Make a result of each candidate. Samples differ in size, so the ratio is one of rates."""
    rows, tokens = (outcome.summary[name] // num_slices for name in ("rows", "tokens"))
    amounts = (
        {"documents": rows, "tokens": tokens},
        {"documents": len(job.texts) // num_slices},
    )
    lines: list[records.Result] = []
    for amount, measurement in zip(amounts, outcome.measurements, strict=True):
        case = Case(
            name=f"dataset/minilm-{job.precision}-sentences",
            candidates=(candidate(PEER, load_parts),),
            gate=lambda _output: Verdict(passed=True),
            fingerprint=fingerprint(job.texts),
            seed=SEED,
            amounts=amount,
        )
        device = find_device("cpu")
        lines += records.make_results(case, [measurement], device=device, threads=job.threads)
    lines = [replace(x, run=lines[0].run, best_peer=None, ratio_to_best_peer=None) for x in lines]
    if any(line.status != "measured" for line in lines):
        return lines
    best = lines[1].throughput_per_s["documents"]
    return [
        replace(
            line,
            best_peer=THEIRS,
            ratio_to_best_peer=round(line.throughput_per_s["documents"] / best, 3),
        )
        for line in lines
    ]


def make_resident(outcome: Outcome, rows: int) -> Resident:
    """Put resident memory over time together with the machine's name."""
    seconds, mib = zip(*((round(s, 2), round(m, 1)) for s, m in outcome.resident), strict=True)
    return Resident(
        device=find_device("cpu").slug,
        rows=rows,
        seconds=seconds,
        mib=mib,
        again_seconds=outcome.again["seconds"]["total"],
    )


@click.command()
@click.option("--rows", type=int, default=1_000_000, show_default=True)
@click.option("--sample", type=int, default=20_000, show_default=True, help="Rows of the peer.")
@click.option("--slices", type=int, default=5, show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--no-save", is_flag=True, help="Record and draw nothing.")
def million(rows: int, sample: int, slices: int, dtype: str, no_save: bool) -> int:
    """Embed ROWS sentences with MiniLM, beside sentence-transformers on a sample of them.

    Exits with 1 where the engine's vectors are wrong.
    """
    parts = [range(first, sample, slices) for first in range(slices)]
    stride = rows // sample
    if rows % (slices * SHARDS_PER_SLICE) or rows % sample or sample % slices:
        raise click.UsageError(
            f"rows must be a multiple of {slices * SHARDS_PER_SLICE} and of the "
            "sample, and the sample one of the slices"
        )
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, TEXTS)
        written = write_sentences(path, rows)
        click.echo(f"{written.num_rows:,} sentences, {written.num_repeated:,} of them repeated")
        with path.open(encoding="utf-8", newline="\n") as file:
            texts = [line.removesuffix("\n") for line in islice(file, 0, None, stride)]
        job = minilm_job(texts, threads=find_device("cpu").cores, precision=dtype)
        outcome = compare(Path(scratch), job, parts, stride)
    lines = make_lines(outcome, job, slices)
    console = open_console()
    console.print(result_table(lines))
    for text in footnotes(lines):
        console.print(f"  {text}", highlight=False, markup=False)
    again = outcome.again
    click.echo(f"again: {again['resumed_rows']:,} rows compared, {again['seconds']}")
    click.echo(f"seconds by stage: {outcome.summary['seconds']}; others: {lines[0].other_cores}")
    resident = make_resident(outcome, rows)
    most = max(resident.mib)
    click.echo(f"resident: {most:.0f} MiB at most, {resident.trend:+.1%} over the second half")
    measured = lines[0].status == "measured"
    if not no_save:
        records.append(lines)
        if measured:
            write_resident(resident, records.FOLDER)
    return 0 if measured else 1
