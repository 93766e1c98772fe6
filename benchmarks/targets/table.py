"""Reads the targets from ``targets.tsv``, a row each, and computes the figures that answer them.

``answered_by`` names one of :data:`QUANTITIES`, in parentheses its argument, such as a peer:
``times_peer(torch eager)``. Reasons are qualitative; figures are in LOG.md.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.records.runs import default, measured
from benchmarks.records.words import amount, number, times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.records.results import Result
    from benchmarks.records.runs import Run

TABLE = Path(__file__).with_name("targets.tsv")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A recorded value, in ``words`` with its unit; ``peer``: who it is compared with.

    ``limit``: the share of the roofline that the engine reached and, for a ratio, the largest ratio
    that the roofline permits.
    """

    value: float
    words: str
    peer: str = ""
    limit: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A wanted value: ``wanted`` in words, and as either ``at_least`` or ``at_most``.

    - ``answered_by``: the quantity that is compared, computed from a run.
    - ``case``, ``threads``, ``isa``: the runs that it is computed from.
    - ``gpu``: the prefix of the runs' device names; empty: CPUs.
    - ``unmeasured``: why nothing answers the target.
    - ``reason``: why the target is missed, where that is known.
    """

    group: str
    what: str
    wanted: str
    at_least: float | None = None
    at_most: float | None = None
    answered_by: str = ""
    case: str = ""
    threads: int | None = None
    isa: str | None = None
    gpu: str = ""
    unmeasured: str = ""
    reason: str = ""

    @property
    def quantity(self) -> str:
        """The name of the quantity that is compared, without its argument."""
        return self.answered_by.partition("(")[0]

    def find_runs(self, runs: Sequence[Run]) -> list[Run]:
        """Return each device's newest run that can answer the target, the newest first."""
        newest: dict[str, Run] = {}
        for run in sorted(runs, key=lambda run: run[0].time_utc, reverse=True):
            device = run[0].device
            if (
                (run[0].case, run[0].isa) == (self.case, self.isa)
                and self.threads in (None, run[0].threads)
                and device.startswith("nvidia") == bool(self.gpu)
                and device.startswith(self.gpu)
            ):
                newest.setdefault(device, run)
        return list(newest.values())

    def answer(self, run: Run) -> Reached | None:
        """Compute the value that a run reached; None where the engine or the peer has no figure."""
        compared = self.answered_by.partition("(")[2].removesuffix(")")
        return QUANTITIES[self.quantity](run, compared)

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the target."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


def all_targets() -> list[Target]:
    """Read every target, in the order of ``targets.tsv``."""
    convert: dict[str, Callable[[str], Any]] = {
        "at_least": lambda text: float(text) if text else None,
        "at_most": lambda text: float(text) if text else None,
        "threads": lambda text: int(text) if text else None,
        "isa": lambda text: text or None,
    }
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
        return [Target(**{k: convert.get(k, str)(v) for k, v in row.items()}) for row in rows]


def _ours(run: Run) -> Result | None:
    """Return the result of the engine's default candidate; None: it has no time."""
    ours = default(run)
    return None if ours is None or ours.p50_ms is None else ours


def _peer(run: Run, name: str) -> Result | None:
    """Return the result of the candidate ``name``, or of the fastest peer; None: it has no time."""
    found = [r for r in measured(run) if r.candidate == name] if name else measured(run, "peer")
    return next(iter(found), None)


def _share(ours: Result) -> str:
    return "" if ours.fraction_of_limit is None else f"{ours.fraction_of_limit:.0%}"


def times_peer(run: Run, name: str) -> Reached | None:
    """Return the engine's speed divided by that of the fastest peer, or of candidate ``name``."""
    ours = _ours(run)
    peer = _peer(run, name or (ours.best_peer if ours else None) or "")
    if ours is None or peer is None or not ours.p50_ms or not peer.p50_ms:
        return None
    recorded = None if name else ours.ratio_to_best_peer
    ratio = peer.p50_ms / ours.p50_ms if recorded is None else recorded
    limit = _share(ours)
    if peer.fraction_of_limit and ours.amounts == peer.amounts:
        limit += f"; it permits {times(1 / peer.fraction_of_limit)}"
    return Reached(value=ratio, words=times(ratio), peer=peer.candidate, limit=limit)


def time_over(run: Run, name: str) -> Reached | None:
    """Return the engine's time divided by that of the fastest peer, or of candidate ``name``."""
    ours, peer = _ours(run), _peer(run, name)
    if ours is None or peer is None or not ours.p50_ms or not peer.p50_ms:
        return None
    ratio = ours.p50_ms / peer.p50_ms
    words = f"{ratio:.2f}x the time ({number(ours.p50_ms)} ms, {number(peer.p50_ms)} ms)"
    return Reached(value=ratio, words=words, peer=peer.candidate)


def memory_over(run: Run, name: str) -> Reached | None:
    """Return the engine's peak memory divided by the least of all peers, or by that of ``name``."""
    ours = _ours(run)
    peers = [r for r in measured(run, "peer") if r.peak_mib and name in ("", r.candidate)]
    if ours is None or not ours.peak_mib or not peers:
        return None
    least = min(peers, key=lambda r: r.peak_mib or 0.0)
    ratio = ours.peak_mib / (least.peak_mib or 1.0)
    words = f"{ratio:.2f}x ({number(ours.peak_mib)} MiB, {number(least.peak_mib)} MiB)"
    return Reached(value=ratio, words=words, peer=least.candidate)


def share_of_limit(run: Run, _: str) -> Reached | None:
    """Return the share, 0 to 1, of the roofline's speed that the engine reaches."""
    ours = _ours(run)
    if ours is None or ours.fraction_of_limit is None:
        return None
    best = next((r for r in measured(run, "peer") if r.fraction_of_limit is not None), None)
    peer = "" if best is None else f"{best.candidate} {_share(best)}"
    share = _share(ours)
    return Reached(value=ours.fraction_of_limit, words=share, peer=peer, limit=share)


def microseconds_a_text(run: Run, _: str) -> Reached | None:
    """Return the engine's median time per text, in microseconds."""
    ours = _ours(run)
    if ours is None or ours.p50_ms is None:
        return None
    value = 1e3 * ours.p50_ms / ours.amounts["texts"]
    return Reached(value=value, words=f"{number(value)} us")


def rate(run: Run, what: str) -> Reached | None:
    """Return the engine's throughput per second of the amount ``what``, such as "tokens"."""
    ours = _ours(run)
    if ours is None or what not in ours.throughput_per_s:
        return None
    value = ours.throughput_per_s[what]
    return Reached(value=value, words=f"{amount(what, value)}/s", limit=_share(ours))


def gate_figure(run: Run, name: str) -> Reached | None:
    """Return the figure ``name`` of the engine's correctness gate, whether it passed or not."""
    ours = next((r for r in run if r.role == "ours" and name in r.gate), None)
    return None if ours is None else Reached(value=ours.gate[name], words=f"{ours.gate[name]:.7g}")


QUANTITIES: dict[str, Callable[[Run, str], Reached | None]] = {
    function.__name__: function
    for function in (
        *(times_peer, time_over, memory_over),
        *(share_of_limit, microseconds_a_text, rate, gate_figure),
    )
}
