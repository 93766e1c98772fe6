"""One table of all tokenizer cases: the engine against the best peer whose results are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result

GROUP = "tokenizer/"
HEADER = ["case", "threads", "engine", "best peer", "x", "x CPU", "own x", "rows wrong of peers"]
# The candidate that the engine's own times are compared with.
ALONE = ", one thread"


def is_tokenizer_run(run: Sequence[Result]) -> bool:
    """Return whether the run belongs into the table of tokenizers."""
    return run[0].case.startswith(GROUP)


def tokenizer_row(run: Sequence[Result]) -> list[str]:
    """Write one case: a rate or, for a sentence or a load, a time; and how many times the peer's.

    ``own x``: the engine's own time with one thread over its time with all.
    """
    first = run[0]
    cells = [first.case.removeprefix(GROUP), str(first.threads)]
    engine = next(result for result in run if result.role == "ours")
    if engine.p50_ms is None:
        return [*cells, engine.reason or engine.status, "", "", "", "", wrong_rows(run)]
    peers = [r for r in run if r.role == "peer" and r.p50_ms and r.cpu_p50_ms]
    peer = min(peers, key=lambda r: r.p50_ms or 0.0, default=None)
    frugal = min(peers, key=lambda r: r.cpu_p50_ms or 0.0, default=None)
    own = [r for r in run if r.role == "ours" and r.p50_ms]
    alone = next((r for r in own if r.candidate.endswith(ALONE)), None)
    return [
        *cells,
        speed(engine),
        "none" if peer is None else f"{peer.candidate}, {speed(peer)}",
        "" if peer is None else _times(peer.p50_ms, engine.p50_ms),
        "" if frugal is None else _times(frugal.cpu_p50_ms, engine.cpu_p50_ms),
        "" if alone is None else _times(alone.p50_ms, engine.p50_ms),
        wrong_rows(run),
    ]


def speed(result: Result) -> str:
    """Write MB of UTF-8 a second; or microseconds, or milliseconds and memory, of a single call."""
    name, time_ms = result.case, result.p50_ms or 0.0
    if name.endswith("-load"):
        memory = "" if result.peak_mib is None else f", {result.peak_mib:.1f} MiB"
        return f"{time_ms:.3g} ms{memory}"
    if name.endswith("-sentence"):
        return f"{1e3 * time_ms / result.amounts['texts']:.3g} us"
    return f"{result.throughput_per_s['bytes'] / 1e6:.3g} MB/s"


def wrong_rows(run: Sequence[Result]) -> str:
    """Name the peers that failed the gate, with how many rows differ."""
    failed = [result for result in run if result.status == "gate failed"]
    counts = [
        f"{r.candidate} {r.gate.get('differing_rows', 0):.0f} of {r.gate.get('rows', 0):.0f}"
        for r in failed
    ]
    return "; ".join(counts)


def _times(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.2f}" if theirs and ours else ""
