"""One short text: how long it takes in a running process, and from a new process's first import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.cases.embedding import PRECISIONS, SEED, build_ours, make_gate, minilm_job, why_not
from benchmarks.environments import peers_folder
from benchmarks.measuring.case import Case, CaseSpec, EmbeddingJob, Options, ours
from benchmarks.peers import embedding_candidates
from benchmarks.texts.corpus import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from benchmarks.measuring.case import Call

TEXT = "How do I read a file line by line without keeping all of it in memory?"
COLD_START = "cold_start/minilm-float32"
# Enough for a 99th percentile; a quick run is content with a 90th.
LATENCY_ROUNDS, QUICK_ROUNDS = 200, 50


def case_specs() -> list[CaseSpec]:
    """Return cases of MiniLM: a running process in each precision, and cold starts in float32."""
    running = "one short text, embedded by a running process"
    new = "a new process's import, load and first vector"
    kinds = {f"latency/minilm-{precision}": running for precision in PRECISIONS}
    kinds |= {COLD_START: new, f"{COLD_START}-compiled": f"{new}, ours from a compiled folder"}
    return [
        CaseSpec(
            name=name,
            summary=f"{summary}, {name.split('-')[1]}",
            make=partial(make_case, name),
            unavailable=why_not,
        )
        for name, summary in kinds.items()
    ]


def make_case(name: str, options: Options) -> Case:
    """Make the case called ``name``: a call embeds one short text."""
    precision = name.split("-")[1]
    job = minilm_job([TEXT], threads=options.threads, precision=precision)
    own = replace(job, directory=_compile(job)) if name.endswith("-compiled") else job
    # A batch of one text has one size.
    peers = [replace(peer, tune=None) for peer in embedding_candidates(job, options)]
    candidates = [ours(partial(build_ours, own)), *peers]
    case = Case(
        candidates=tuple(candidates),
        gate=make_gate(job, smoke=options.smoke),
        fingerprint=fingerprint(job.texts),
        seed=SEED,
        amounts={"documents": 1},
        isolated=True,
    )
    if name.startswith("latency/"):
        return replace(case, single=True, rounds=QUICK_ROUNDS if options.quick else LATENCY_ROUNDS)
    cold = [replace(c, build=ColdStart(build=c.build)) for c in candidates]
    return replace(case, candidates=tuple(cold), fresh=True)


def _compile(job: EmbeddingJob) -> str:
    """Write MiniLM as a compiled directory of this version of the engine, and return its path."""
    from encoder_engine.opening.compiling import compile_directory

    folder = peers_folder() / "models" / "minilm-compiled"
    folder.parent.mkdir(parents=True, exist_ok=True)
    compile_directory(job.directory, folder, dtype=job.precision, overwrite=True)
    return str(folder)


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Makes a candidate that prepares nothing: its timed call imports, loads and embeds."""

    build: Callable[..., Any]

    def __call__(self) -> Call:
        return lambda: self.build()()
