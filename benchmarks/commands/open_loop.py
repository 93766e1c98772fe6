"""Loads a server at shares of its capacity, with Poisson arrivals: ``python -m benchmarks load``.

The capacity is the throughput of 32 clients that each wait for their answer. Latency counts from
the time when a request was due, so a stalled server is measured fully. Vectors of every answer are
compared with those of ``encode`` at rest: under load they are the same bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from benchmarks.cases.embedding import SEED, load_ours, minilm_directory
from benchmarks.cases.serving import MAX_LENGTH, PATH
from benchmarks.jobs.http_load import (
    Answer,
    Target,
    arrivals,
    closed_loop,
    open_loop,
    percentile,
)
from benchmarks.jobs.http_servers import ServerProcess, ServingJob, our_command, read_vectors
from benchmarks.measuring.case import EmbeddingJob
from benchmarks.texts import corpus

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CLIENTS, CAPACITY_REQUESTS = 32, 2000
NUM_TEXTS = 200


@dataclass(frozen=True, kw_only=True)
class Load:
    """A load and its result; times in milliseconds.

    share: of the capacity. answered, refused: requests by their end.
    failures: the requests that were neither, by the exception or the status: none of a good server.
    refused_p99_ms: of refusals, from the time when the request was due.
    refused_after_ms: the same, from the time when the generator turned to the request: what the
        server takes, a new connection included, and the generator until it reads the answer.
    late_p99_ms: how late requests were sent, because the generator had too little of the CPU.
    """

    share: float
    rate: float
    sent: int
    answered: int
    refused: int
    failures: dict[str, int]
    p50_ms: float
    p99_ms: float
    refused_p99_ms: float
    refused_after_ms: float
    late_p99_ms: float
    answered_per_second: float
    server_cpu_us: float
    wrong_vectors: int


@click.command("load")
@click.option("--share", "shares", type=float, multiple=True, default=(0.5, 0.8, 1.0, 3.0))
@click.option("--seconds", type=float, default=10.0, show_default=True)
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
def load(shares: tuple[float, ...], seconds: float, precision: str, threads: int) -> None:
    """Load the server of MiniLM at shares of its capacity; a line of JSON for each."""
    texts = corpus.short_sentences(corpus.read_documents("bundled"), NUM_TEXTS, seed=SEED)
    job = EmbeddingJob(
        directory=str(minilm_directory()),
        texts=tuple(texts),
        max_length=MAX_LENGTH,
        threads=threads,
        precision=precision,
    )
    expected = load_ours(job).encode(texts, on_truncation="ignore")
    bodies = ServingJob(job=job, connections=CLIENTS, texts_each=1).bodies()
    server = ServerProcess(our_command(precision=precision), job, ready="/health/ready")
    try:
        target = server.target(PATH, bodies)
        closed_loop(target, connections=CLIENTS, requests=NUM_TEXTS)
        capacity = measure_capacity(target)
        click.echo(f"capacity: {capacity:.0f} requests a second", err=True)
        for share in shares:
            measured = measure_load(
                server, target, share=share, rate=share * capacity, seconds=seconds,
                expected=expected,
            )  # fmt: skip
            facts = asdict(measured)
            rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items()}
            click.echo(json.dumps(rounded))
    finally:
        server.stop()
    sys.stdout.flush()


def measure_capacity(target: Target) -> float:
    """Return the requests a second of clients that each wait for their answer."""
    answers = closed_loop(target, connections=CLIENTS, requests=CAPACITY_REQUESTS)
    return CLIENTS / (sum(answer.seconds for answer in answers) / len(answers))


def measure_load(
    server: ServerProcess,
    target: Target,
    *,
    share: float,
    rate: float,
    seconds: float,
    expected: npt.NDArray[np.float32],
) -> Load:
    """Load the server for some seconds."""
    before, start = server.cpu_seconds(), time.perf_counter()
    answers = open_loop(target, rate=rate, seconds=seconds, seed=SEED)
    # What waits when the last request was sent is still answered: beyond the capacity for seconds.
    elapsed = max(seconds, time.perf_counter() - start)
    used = server.cpu_seconds() - before
    of_status = partial(_of_status, answers)
    served, refused = of_status(200), of_status(429)
    wrong = sum(not _is_right(answer, expected) for answer in served)
    return Load(
        share=share,
        rate=rate,
        sent=len(arrivals(rate=rate, seconds=seconds, seed=SEED)),
        answered=len(served),
        refused=len(refused),
        failures=_failures(answers),
        p50_ms=1e3 * percentile(served, 0.5),
        p99_ms=1e3 * percentile(served, 0.99),
        refused_p99_ms=1e3 * percentile(refused, 0.99),
        refused_after_ms=1e3 * percentile(_from_sending(refused), 0.99),
        late_p99_ms=1e3 * percentile(_lateness(answers), 0.99),
        answered_per_second=len(served) / elapsed,
        server_cpu_us=1e6 * used / max(len(answers), 1),
        wrong_vectors=wrong,
    )


def _failures(answers: list[Answer]) -> dict[str, int]:
    """Count the requests that were neither answered nor refused, by what happened to them."""
    failed = (answer for answer in answers if answer.status not in (200, 429))
    return dict(Counter(one.failure or f"status {one.status}" for one in failed))


def _of_status(answers: list[Answer], status: int) -> list[Answer]:
    return [answer for answer in answers if answer.status == status]


def _from_sending(answers: list[Answer]) -> list[Answer]:
    """Count the time of each answer from when its request was sent."""
    return [one._replace(seconds=one.seconds - one.late_seconds) for one in answers]


def _lateness(answers: list[Answer]) -> list[Answer]:
    """Count of each answer only the time until its request was sent."""
    return [one._replace(seconds=one.late_seconds) for one in answers]


def _is_right(answer: Answer, expected: npt.NDArray[np.float32]) -> bool:
    """Compare an answer with the vector of its text, byte for byte."""
    vector = read_vectors(answer.body)[0]
    return bool((expected[answer.number % len(expected)] == vector).all())
