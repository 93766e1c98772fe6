"""Times the parts of our own calls from text to vectors: ``python -m benchmarks profile``.

Every operation of PyTorch's modules is timed where it is called; the same call without timers is
timed in turns. A compiled encoder has no such parts: all its operations are one native call.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.cases.embedding import (
    Kind,
    count_operations,
    kinds,
    load_ours,
    make_gate,
    make_job,
    why_not,
)
from benchmarks.measuring.case import Options
from benchmarks.measuring.load import other_cores, snapshot
from benchmarks.measuring.machine import find_commit, find_device
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.measuring.worker import run_in_worker
from benchmarks.records import results as records
from benchmarks.records.profiles import OTHERS, PARTS, TOKENIZATION, Profile, write_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.case import EmbeddingJob


@contextmanager
def timed_operations() -> Iterator[dict[str, float]]:
    """Add up the seconds of every operation by its name; of one within another, the outer's."""
    from encoder_engine.ops.registry import Operation

    seconds: dict[str, float] = defaultdict(float)
    find = Operation.find
    within = False

    def find_timed(self: Operation, *facts: Any, **others: Any) -> Any:
        function = find(self, *facts, **others)

        def timed(*arguments: Any, **options: Any) -> Any:
            nonlocal within
            if within:
                return function(*arguments, **options)
            within, began = True, time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds[self.name] += time.perf_counter() - began
                within = False

        return timed

    Operation.find = find_timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Operation.find = find  # type: ignore[method-assign]


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of a call, plain and instrumented, and of its parts; means over rounds."""

    seconds: float
    watched: float
    parts: dict[str, float]
    vectors: Any
    other_cores: float | None


def time_parts(job: EmbeddingJob) -> Times:
    """Embed all texts several times, plain and instrumented in turns."""
    from encoder_engine import Encoder

    # Its operations are called one by one, so that they can be timed.
    embedder = load_ours(job, engine="torch")
    assert isinstance(embedder.encoder, Encoder)
    texts = list(job.texts)
    parts: dict[str, float] = defaultdict(float)

    def embed() -> tuple[float, Any]:
        began = time.perf_counter()
        vectors = []
        for window in embedder.encode_windows(texts):
            vectors.append(window.vectors)
            parts[TOKENIZATION] += window.tokenize_seconds
        return time.perf_counter() - began, np.concatenate(vectors)

    _, first = embed()
    parts.clear()
    before, used = snapshot(), time.process_time()
    seconds = watched = 0.0
    for _ in range(MIN_ROUNDS):
        tokenizing = parts[TOKENIZATION]
        seconds += embed()[0]
        parts[TOKENIZATION] = tokenizing
        with timed_operations() as timed:
            seconds_watched, vectors = embed()
        watched += seconds_watched
        assert np.array_equal(vectors, first), "watched, the engine computes other vectors"
        for name, taken in timed.items():
            parts[PARTS.get(name, OTHERS)] += taken
    return Times(
        seconds=seconds / MIN_ROUNDS,
        watched=watched / MIN_ROUNDS,
        parts={part: taken / MIN_ROUNDS for part, taken in parts.items()},
        vectors=first,
        other_cores=other_cores(before, time.process_time() - used),
    )


def make_profile(kind: Kind, options: Options) -> Profile:
    """Measure a case in its own process; measure the machine's peak rate before and after."""
    from benchmarks.measuring.ceilings import product_ceiling

    job, lengths = make_job(kind, options)
    gate = make_gate(job, smoke=options.smoke)
    look = product_ceiling("cpu", job.precision, job.threads)
    before = look()
    found: Times = run_in_worker(partial(time_parts, job), job.threads)
    ceiling = max(before, look())
    verdict = gate(found.vectors)
    if not verdict.passed:
        raise click.ClickException(f"{kind.name}: the vectors are wrong: {verdict.reason}")
    commit = find_commit()
    return Profile(
        device=find_device("cpu").slug,
        time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit.name,
        dirty=commit.dirty,
        case=kind.name,
        threads=job.threads,
        tokens=sum(lengths),
        seconds=found.seconds,
        watched=found.watched,
        parts=found.parts,
        floor=count_operations(job, lengths, attention=False) / ceiling,
        ceiling=ceiling,
        other_cores=found.other_cores,
    )


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--threads", type=int, help="Default: all cores.")
@click.option("--smoke", is_flag=True, help="A few texts of MiniLM, nothing recorded.")
@click.option("--no-save", is_flag=True, help="Record nothing.")
def profile(cases: tuple[str, ...], threads: int | None, *, smoke: bool, no_save: bool) -> int:
    """Print the time of each part of the engine's calls; default: passages with every model."""
    known = {kind.name: kind for kind in kinds()}
    for case in cases:
        if case not in known:
            raise click.UsageError(f"{case} is no embedding case; `run --list` names them")
        reason = why_not(known[case].source)
        if reason is not None:
            raise click.ClickException(f"{case}: {reason}")
    options = Options(threads=threads or find_device("cpu").cores, smoke=smoke)
    for case in cases or [name for name in known if name.endswith("-skewed")]:
        found = make_profile(known[case], options)
        parts = {**found.parts, "the rest": found.rest}
        told = ", ".join(f"{name} {seconds:.3f}" for name, seconds in parts.items())
        click.echo(
            f"{case}: {found.seconds:.3f} s, watched {found.watched:.3f}: {told}; "
            f"dense products at the ceiling {found.floor:.3f}"
        )
        if not (smoke or no_save):
            write_profile(found, records.FOLDER)
    return 0
