"""One short text: how long it takes in a running process, and from a new process's first import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.cases.embedding import (
    PRECISIONS,
    SEED,
    build_ours,
    make_gate,
    minilm_directory,
    why_not,
)
from benchmarks.measuring.case import Candidate, Case, CaseSpec, EmbeddingJob, Options
from benchmarks.peers import embedding_candidates
from benchmarks.texts.corpus import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from benchmarks.measuring.case import Call

TEXT = "How do I read a file line by line without keeping all of it in memory?"
MAX_LENGTH = 256
# Enough for a 99th percentile.
LATENCY_ROUNDS = 200


def case_specs() -> list[CaseSpec]:
    """Return MiniLM in every precision, and a cold start, mostly imports, in float32."""
    kinds = [("latency", precision) for precision in PRECISIONS] + [("cold_start", "float32")]
    summaries = {
        "latency": "one short text, embedded by a running process",
        "cold_start": "a new process's import, load and first vector",
    }
    return [
        CaseSpec(
            name=f"{group}/minilm-{precision}",
            summary=f"{summaries[group]}, {precision}",
            make=partial(make_case, group, precision),
            unavailable=partial(why_not, "bundled"),
        )
        for group, precision in kinds
    ]


def make_case(group: str, precision: str, options: Options) -> Case:
    """Embed one short text per call."""
    job = EmbeddingJob(
        directory=str(minilm_directory()),
        texts=(TEXT,),
        max_length=MAX_LENGTH,
        threads=options.threads,
        precision=precision,
    )
    ours = Candidate(name="encoder-engine", role="ours", build=partial(build_ours, job))
    # A batch of one text has one size.
    peers = [p for p in embedding_candidates(job, options) if not p.name.endswith(" tuned")]
    candidates = [ours, *(replace(peer, tune=None) for peer in peers)]
    case = Case(
        name=f"{group}/minilm-{precision}",
        candidates=tuple(candidates),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=fingerprint(job.texts),
        seed=SEED,
        amounts={"documents": 1},
        isolated=True,
    )
    if group == "latency":
        return replace(case, single=True, rounds=LATENCY_ROUNDS)
    cold = [replace(c, build=ColdStart(build=c.build)) for c in candidates]
    return replace(case, candidates=tuple(cold), fresh=True)


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Build nothing beforehand: the call imports, loads and embeds."""

    build: Callable[..., Any]

    def __call__(self) -> Call:
        return lambda: self.build()()
