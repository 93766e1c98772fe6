"""Measures what serving must cost, beside ``encode``: ``python -m benchmarks serving``.

Each row is a target: overhead of the server, latency, throughput, arrivals at 0.8 and 3 times the
capacity, a lone text beside requests of 2,048, CPU time beside infinity's, start and memory. Before
anything is timed, the server's vectors must be right. Peers alternate in rounds. A client in one
thread sends the requests and needs a core of its own: give the server at most all cores but one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import click
import numpy as np
import psutil

from benchmarks.cases.embedding import SEED, load_ours, make_gate, minilm_job
from benchmarks.cases.serving import PATH
from benchmarks.jobs.http_load import arrivals, closed_loop, open_loop, percentile
from benchmarks.jobs.http_servers import ServerProcess, ServingJob, our_command, read_vectors
from benchmarks.peers import find_peers
from benchmarks.texts import corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.jobs.http_load import Target
    from benchmarks.measuring.case import EmbeddingJob

BATCH_MS = 20.0
# The lone texts a second beside large requests.
LONE_RATE = 20.0
LARGE_TEXTS = 2048
CLIENTS, CAPACITY_REQUESTS = 32, 2000
MIB = 2**20
# Of the histogram of refusals: those within 20 ms, and all.
REFUSED_IN_TIME = ('bucket{le="0.02"}', "count")
# Loads a model as the server does, embeds as many texts as its warm-up, and prints the memory.
ENCODE = """
import sys
from encoder_engine import Embedder
import psutil
path, dtype, threads = sys.argv[1:]
embedder = Embedder.from_pretrained(path, device="cpu", dtype=dtype, num_threads=int(threads))
for count in (1, 16, 64, 64):
    embedder.encode(["a text of some words, as they are sent to be embedded"] * count)
print(psutil.Process().memory_info().rss)
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A target, what was measured, and whether it was met; None: it was not measured."""

    what: str
    wanted: str
    found: str
    met: bool | None


@dataclass(frozen=True, kw_only=True)
class Load:
    """The result of requests that were sent when they were due; times in milliseconds.

    failures: the requests that were neither answered nor refused, by the exception or the status.
    refused_p99_ms: of refusals, from the time when the request was due.
    refused_after_ms: the same, from the time when the generator turned to the request: what the
        server takes, a new connection included, and the generator until it reads the answer.
    late_p99_ms: how late requests were sent, because the generator had too little of the CPU.
    """

    sent: int
    refused: int
    failures: dict[str, int]
    p50_ms: float
    p99_ms: float
    refused_p99_ms: float
    refused_after_ms: float
    late_p99_ms: float
    answered_per_second: float
    wrong_vectors: int


def measure_load(target: Target, expected: Any, *, rate: float, seconds: float) -> Load:
    """Load a server for some seconds; latency counts from the time when a request was due.

    ``expected``: the vector of every text by ``encode`` at rest; under load they are the same
    bytes.
    """
    start = time.perf_counter()
    answers = open_loop(target, rate=rate, seconds=seconds, seed=SEED)
    # What waits when the last request was sent is still answered: beyond the capacity for seconds.
    elapsed = max(seconds, time.perf_counter() - start)
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 429]
    failed = [answer for answer in answers if answer.status not in (200, 429)]
    from_sending = [a._replace(seconds=a.seconds - a.late_seconds) for a in refused]
    lateness = [a._replace(seconds=a.late_seconds) for a in answers]
    wrong = [
        answer
        for answer in served
        if (expected[answer.number % len(expected)] != read_vectors(answer.body)[0]).any()
    ]
    return Load(
        sent=len(arrivals(rate=rate, seconds=seconds, seed=SEED)),
        refused=len(refused),
        failures=dict(Counter(a.failure or f"status {a.status}" for a in failed)),
        p50_ms=1e3 * percentile(served, 0.5),
        p99_ms=1e3 * percentile(served, 0.99),
        refused_p99_ms=1e3 * percentile(refused, 0.99),
        refused_after_ms=1e3 * percentile(from_sending, 0.99),
        late_p99_ms=1e3 * percentile(lateness, 0.99),
        answered_per_second=len(served) / elapsed,
        wrong_vectors=len(wrong),
    )


class Measurement:
    """A server of MiniLM, the same model here, and the sizes of a run.

    rounds: that each alternate the server and ``encode``. requests: of a round.
    """

    def __init__(self, job: EmbeddingJob, *, rounds: int, requests: int, seconds: float) -> None:
        self.job, self.rounds, self.requests, self.seconds = job, rounds, requests, seconds
        start = time.perf_counter()
        self.server = ServerProcess(
            our_command(precision=job.precision), job, ready="/health/ready"
        )
        self.start_seconds = time.perf_counter() - start
        self.start_bytes = psutil.Process(self.server.process.pid).memory_info().rss
        self.embedder = load_ours(job)
        self.texts = list(job.texts)

    def target(self, texts_each: int = 1, form: str = "base64") -> Target:
        """Return the target of requests with so many texts."""
        serving = ServingJob(job=self.job, connections=1, texts_each=texts_each)
        bodies = serving.bodies()
        if form == "float":
            bodies = tuple(body.replace(b'"base64"', b'"float"') for body in bodies)
        return self.server.target(PATH, bodies)

    def check(self, *, smoke: bool) -> None:
        """Raise :class:`click.ClickException` where a vector of the server is wrong."""
        answers = closed_loop(self.target(), connections=16, requests=len(self.texts))
        found = np.concatenate([read_vectors(answer.body) for answer in answers])
        expected = self.embedder.encode(self.texts, on_truncation="ignore")
        if self.job.precision == "float32" and not np.array_equal(found, expected):
            raise click.ClickException("the server's vectors differ from encode's")
        verdict = make_gate(self.job, smoke=smoke)(found)
        if not verdict.passed:
            raise click.ClickException(f"the server's vectors are wrong: {verdict.reason}")

    def metric(self, name: str) -> float:
        """Return a number of ``/metrics``, summed over its labels."""
        with urlopen(f"http://127.0.0.1:{self.server.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(f"encoder_engine_{name}") and line[0] != "#"
        )

    def overhead(self, form: str, most: float) -> Row:
        """Measure the server's CPU time beyond the lanes, by 32 clients."""
        target, count = self.target(form=form), self.rounds * self.requests
        closed_loop(target, connections=32, requests=self.requests)
        before = self.server.loop_seconds()
        closed_loop(target, connections=32, requests=count)
        used = 1e6 * (self.server.loop_seconds() - before) / count
        return Row(
            what=f"server's CPU beyond the engine's, 32 connections, {form}",
            wanted=f"<= {most:.0f} us",
            found=f"{used:.0f} us",
            met=used <= most,
        )

    def idle_latency(self) -> Row:
        """Compare the latency of one client with calls of ``encode``."""
        served, called = [], []
        for number in range(self.rounds):
            target = self.target()
            turned = replace(target, bodies=target.bodies[number:] + target.bodies[:number])
            answers = closed_loop(turned, connections=1, requests=self.requests // 10 + 1)
            served += [answer.seconds for answer in answers]
            for answer in answers:
                text = self.texts[(answer.number + number) % len(self.texts)]
                start = time.perf_counter()
                self.embedder.encode([text])
                called.append(time.perf_counter() - start)
        added = 1e3 * (median(served) - median(called))
        return Row(
            what="added latency over encode, idle, one connection",
            wanted="p50 <= 0.25 ms",
            found=f"{added:.3f} ms ({1e3 * median(served):.2f} beside {1e3 * median(called):.2f})",
            met=added <= 0.25,
        )

    def throughput(self, connections: int, texts_each: int, least: float) -> Row:
        """Compare texts a second with those of ``encode`` in batches of the same size."""
        served, called, sizes = [], [], []
        target = self.target(texts_each)
        count = len(target.bodies) if texts_each > 1 else self.requests
        for _ in range(self.rounds):
            before = self.metric("batch_texts_sum"), self.metric("batch_texts_count")
            start = time.perf_counter()
            closed_loop(target, connections=connections, requests=count)
            served.append(count * texts_each / (time.perf_counter() - start))
            texts = self.metric("batch_texts_sum") - before[0]
            size = round(texts / (self.metric("batch_texts_count") - before[1]))
            sizes.append(size)
            step = texts_each if texts_each > 1 else max(1, size)
            sent = [self.texts[n % len(self.texts)] for n in range(count * texts_each)]
            start = time.perf_counter()
            for first in range(0, len(sent), step):
                self.embedder.encode(sent[first : first + step])
            called.append(len(sent) / (time.perf_counter() - start))
        share = median(served) / median(called)
        return Row(
            what=f"throughput, {connections} clients, {texts_each} texts a request",
            wanted=f">= {least:.0%} of encode",
            found=f"{share:.1%} ({median(served):.0f} texts/s, batches of {median(sizes):.0f})",
            met=share >= least,
        )

    def load(self, expected: Any) -> Iterator[Row]:
        """Load the server at 0.8 and 3 times its capacity."""
        target = self.target()
        # The throughput of clients that each wait for their answer.
        waiting = closed_loop(target, connections=CLIENTS, requests=CAPACITY_REQUESTS)
        capacity = CLIENTS / (sum(answer.seconds for answer in waiting) / len(waiting))
        load = measure_load(target, expected, rate=0.8 * capacity, seconds=self.seconds)
        yield Row(
            what="Poisson arrivals at 80 % of the capacity",
            wanted=f"p99 <= 3 x p50 and <= {4 * BATCH_MS:.0f} ms, no wrong vector",
            found=f"p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms, "
            f"{load.wrong_vectors} wrong, {load.sent} sent, {_failed(load)}",
            met=load.p99_ms <= min(3 * load.p50_ms, 4 * BATCH_MS)
            and not load.wrong_vectors
            and not load.failures,
        )
        process = psutil.Process(self.server.process.pid)
        before = process.memory_info().rss
        in_time_before, counted_before = (
            self.metric(f"refusal_seconds_{name}") for name in REFUSED_IN_TIME
        )
        load = measure_load(target, expected, rate=3.0 * capacity, seconds=self.seconds)
        grown = (_peak_bytes(process.pid) - before) / MIB
        work = load.answered_per_second / capacity
        in_time, counted = (self.metric(f"refusal_seconds_{name}") for name in REFUSED_IN_TIME)
        own = (in_time - in_time_before) / max(counted - counted_before, 1)
        yield Row(
            what="arrivals at 3 x the capacity",
            wanted=">= 95 % of it answered, refusals p99 <= 20 ms, none failed, memory bounded "
            "(512 MiB)",
            found=f"{work:.0%} answered, {load.refused} refused with p99 "
            f"{load.refused_p99_ms:.1f} ms from when they were due, {load.refused_after_ms:.1f} "
            f"from when they were sent (late by {load.late_p99_ms:.1f} ms at p99), {own:.1%} "
            f"within 20 ms by the server's clock, {_failed(load)}, {grown:.0f} MiB more",
            met=work >= 0.95
            and load.refused_p99_ms <= 20
            and grown <= 512
            and not load.wrong_vectors
            and not load.failures,
        )

    def lone(self) -> Row:
        """Send lone texts beside a client that sends 2,048 a request."""
        job = replace(self.job, texts=tuple(islice(cycle(self.texts), LARGE_TEXTS)))
        bodies = ServingJob(job=job, connections=1, texts_each=LARGE_TEXTS).bodies()
        large, stop = self.server.target(PATH, bodies), threading.Event()
        idle = open_loop(self.target(), rate=LONE_RATE, seconds=self.seconds, seed=SEED)
        most = 3e3 * percentile(idle, 0.99) + BATCH_MS

        def send() -> None:
            while not stop.is_set():
                closed_loop(large, connections=1, requests=1)

        other = threading.Thread(target=send)
        other.start()
        time.sleep(min(1.0, self.seconds / 4))
        answers = open_loop(self.target(), rate=LONE_RATE, seconds=self.seconds, seed=SEED)
        stop.set()
        other.join()
        slow = 1e3 * percentile(answers, 0.99)
        return Row(
            what="lone texts beside requests of 2,048",
            wanted=f"p99 <= 3 x the idle p99 + a slice = {most:.1f} ms",
            found=f"p50 {1e3 * percentile(answers, 0.5):.1f} ms, p99 {slow:.1f} ms, "
            f"{len(answers)} sent",
            met=slow <= most and all(answer.status == 200 for answer in answers),
        )

    def start(self) -> Iterator[Row]:
        """State how long the start took, and what the server holds beyond a process that embeds."""
        seconds = [self.start_seconds]
        for _ in range(min(2, self.rounds - 1)):
            begun = time.perf_counter()
            again = ServerProcess(
                our_command(precision=self.job.precision), self.job, ready="/health/ready"
            )
            seconds.append(time.perf_counter() - begun)
            again.stop()
        yield Row(
            what="start to ready",
            wanted="<= 3 s",
            found=f"{median(seconds):.2f} s",
            met=median(seconds) <= 3,
        )
        given = (self.job.directory, self.job.precision, str(self.job.threads))
        ran = subprocess.run(
            [sys.executable, "-c", ENCODE, *given], capture_output=True, text=True, check=True
        )
        more = (self.start_bytes - int(ran.stdout)) / MIB
        yield Row(
            what="memory beyond a process that embeds",
            wanted="<= 40 MiB",
            found=f"{more:.0f} MiB",
            met=more <= 40,
        )


def beside_infinity(job: EmbeddingJob, *, rounds: int, requests: int) -> Row:
    """Compare the CPU time of a request with infinity's: float32, 16 clients."""
    row = partial(Row, what="CPU a request beside infinity, float32, 16 clients", wanted="<= 0.5 x")
    (peer,) = (known for known in find_peers() if known.name == "infinity")
    python = peer.python()
    if python is None:
        return row(found=f"not measured: {peer.available()}", met=None)
    job = replace(job, precision="float32")
    (way,) = peer.serving
    program = str(Path(python).with_name(Path(way.command()[0]).name))
    servers = {
        "ours": ServerProcess(our_command(precision="float32"), job, ready="/health/ready"),
        "infinity": ServerProcess((program, *way.command()[1:]), job, ready=way.ready),
    }
    bodies = ServingJob(job=job, connections=16, texts_each=1).bodies()
    gate = make_gate(job, smoke=False)
    used = dict.fromkeys(servers, 0.0)
    try:
        for name, server in servers.items():
            target = server.target(PATH, bodies)
            answers = closed_loop(target, connections=16, requests=len(bodies))
            verdict = gate(np.concatenate([read_vectors(answer.body) for answer in answers]))
            if not verdict.passed:
                raise click.ClickException(f"{name}'s vectors are wrong: {verdict.reason}")
        for _ in range(rounds):
            for name, server in servers.items():
                before = server.cpu_seconds()
                closed_loop(server.target(PATH, bodies), connections=16, requests=requests)
                used[name] += server.cpu_seconds() - before
    finally:
        for server in servers.values():
            server.stop()
    ours, theirs = (1e3 * used[name] / (rounds * requests) for name in ("ours", "infinity"))
    share = ours / theirs
    return row(found=f"{share:.2f} x ({ours:.2f} and {theirs:.2f} ms)", met=share <= 0.5)


def _failed(load: Load) -> str:
    """State the requests that were neither answered nor refused, by what happened to them."""
    kinds = ", ".join(f"{name} {count}" for name, count in load.failures.items())
    return f"{sum(load.failures.values())} failed" + (f" ({kinds})" if kinds else "")


def _peak_bytes(pid: int) -> int:
    """Return the largest resident memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(peak.split()[1])


@click.command("serving")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="bfloat16")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seconds", type=float, default=20.0, show_default=True, help="Of each load.")
@click.option("--smoke", is_flag=True, help="Tiny sizes, to see that it works.")
def serving(precision: str, threads: int, seconds: float, smoke: bool) -> None:
    """Measure the targets of serving beside encode and infinity; a line of JSON for each.

    Takes five minutes; needs a quiet machine with a core more than --threads.
    """
    count = 40 if smoke else 1000
    texts = corpus.short_sentences(corpus.read_documents("bundled"), count, seed=SEED)
    job = minilm_job(texts, threads=threads, precision=precision)
    sizes = {"rounds": 2 if smoke else 5, "requests": 40 if smoke else 1000}
    measurement = Measurement(job, seconds=1.0 if smoke else seconds, **sizes)
    try:
        measurement.check(smoke=smoke)
        expected = measurement.embedder.encode(list(job.texts), on_truncation="ignore")
        large = min(1000, count)
        rows: tuple[Callable[[], Any], ...] = (
            measurement.start,
            partial(measurement.overhead, "float", 120.0),
            partial(measurement.overhead, "base64", 100.0),
            measurement.idle_latency,
            partial(measurement.throughput, 16, 1, 0.95),
            partial(measurement.throughput, 1, large, 0.98),
            measurement.lone,
            partial(measurement.load, expected),
        )
        for make in rows:
            found = make()
            for row in (found,) if isinstance(found, Row) else found:
                show(row)
    finally:
        measurement.server.stop()
    if not smoke:
        show(beside_infinity(job, **sizes))


def show(row: Row) -> None:
    """Print a row as JSON."""
    click.echo(json.dumps(vars(row)))
