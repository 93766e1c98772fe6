"""Texts to vectors over HTTP: clients that wait for each answer, and one large request."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases.embedding import SEED, make_gate, minilm_job, why_not
from benchmarks.jobs.http_servers import ServingJob, build, our_command
from benchmarks.measuring.case import Case, CaseSpec, Options, ours
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers.servers import COMMAND, INFINITY
from benchmarks.texts import corpus

PRECISIONS = ("float32", "bfloat16")


class Kind(NamedTuple):
    """A case: the number of clients, each waiting for its answer, and of texts in a request."""

    connections: int
    texts_each: int
    num_texts: int
    summary: str


KINDS = {
    "alone": Kind(1, 1, 100, "one client, one text a request"),
    "clients": Kind(16, 1, 800, "16 clients, one text a request"),
    "large": Kind(1, 1000, 1000, "one request of 1,000 texts"),
}


def case_specs() -> list[CaseSpec]:
    """Return MiniLM behind HTTP for each precision and each number of clients."""
    return [
        CaseSpec(
            name=f"serving/minilm-{precision}-{name}",
            summary=f"{kind.summary}, {precision}",
            make=partial(make_case, kind, precision),
            unavailable=why_not,
        )
        for precision in PRECISIONS
        for name, kind in KINDS.items()
    ]


def make_case(kind: Kind, precision: str, options: Options) -> Case:
    """Make the case: a call sends all requests. The peer computes in float32 alone."""
    count = 6 if options.smoke else kind.num_texts // (4 if options.quick else 1)
    texts = corpus.short_sentences(corpus.read_documents("bundled"), count, seed=SEED)
    job = minilm_job(texts, threads=options.threads, precision=precision)
    serving = ServingJob(job=job, connections=kind.connections, texts_each=kind.texts_each)
    candidates = [ours(partial(build, serving, our_command(precision), "/health/ready"))]
    if precision == "float32":
        program = str(Path(INFINITY.python() or "python").with_name(COMMAND[0]))
        command = (program, *COMMAND[1:])
        candidates.append(candidate(INFINITY, partial(build, serving, command, "/health")))
    return Case(
        candidates=tuple(candidates),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=corpus.fingerprint(job.texts),
        seed=SEED,
        amounts={"documents": len(texts), "requests": -(-len(texts) // kind.texts_each)},
        isolated=True,
        rounds=MIN_ROUNDS,
    )
