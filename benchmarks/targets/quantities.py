"""Quantities of a run that targets are about: ratios, shares, times, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.records.runs import default, measured
from benchmarks.records.words import amount, number, times

if TYPE_CHECKING:
    from benchmarks.records.front_doors import FrontDoor
    from benchmarks.records.resident import Resident
    from benchmarks.records.results import Result

Run = Sequence["Result"]


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The value that a run reached, in ``words`` with its unit; ``peer``: compared with whom.

    ``limit``: the share of the roofline that the engine reached and, for a ratio, the largest ratio
    that the roofline permits.
    """

    value: float
    words: str
    peer: str = ""
    limit: str = ""


Quantity = Callable[[Run], "Reached | None"]


def times_best(candidate: str | None = None) -> Quantity:
    """Return the speed in multiples of the fastest peer's; ``candidate``: which of the engine's."""

    def reached(run: Run) -> Reached | None:
        ours = _ours(run, candidate)
        peer = None if ours is None else _named(run, ours.best_peer)
        if ours is None or peer is None or ours.ratio_to_best_peer is None:
            return None
        return _ratio(ours, peer, ours.ratio_to_best_peer)

    return reached


def times_peer(name: str) -> Quantity:
    """Return the speed in multiples of one peer's."""

    def reached(run: Run) -> Reached | None:
        ours, peer = _ours(run), _named(run, name)
        if ours is None or peer is None or not ours.p50_ms or not peer.p50_ms:
            return None
        return _ratio(ours, peer, peer.p50_ms / ours.p50_ms)

    return reached


def time_over_best(name: str | None = None) -> Quantity:
    """Return the time in multiples of the fastest peer's, or of one peer's."""

    def reached(run: Run) -> Reached | None:
        ours = _ours(run)
        peer = next(iter(measured(run, "peer")), None) if name is None else _named(run, name)
        if ours is None or peer is None or not ours.p50_ms or not peer.p50_ms:
            return None
        ratio = ours.p50_ms / peer.p50_ms
        words = f"{ratio:.2f}x the time ({number(ours.p50_ms)} ms, {number(peer.p50_ms)} ms)"
        return Reached(value=ratio, words=words, peer=peer.candidate)

    return reached


def times_own(slower: str) -> Quantity:
    """Return the speed in multiples of the engine's own candidate ``slower``."""

    def reached(run: Run) -> Reached | None:
        ours, other = _ours(run), _named(run, slower)
        if ours is None or other is None or not ours.p50_ms or not other.p50_ms:
            return None
        ratio = other.p50_ms / ours.p50_ms
        return Reached(value=ratio, words=times(ratio), peer=other.candidate)

    return reached


def share_of_limit(run: Run) -> Reached | None:
    """Return the share of the roofline that the engine reaches."""
    ours = _ours(run)
    if ours is None or ours.fraction_of_limit is None:
        return None
    share = ours.fraction_of_limit
    best = next((r for r in measured(run, "peer") if r.fraction_of_limit is not None), None)
    peer = "" if best is None else f"{best.candidate} {best.fraction_of_limit:.0%}"
    return Reached(value=share, words=f"{share:.0%}", peer=peer, limit=f"{share:.0%}")


def microseconds_a_text(run: Run) -> Reached | None:
    """Return the median time per text."""
    ours = _ours(run)
    if ours is None or ours.p50_ms is None:
        return None
    value = 1e3 * ours.p50_ms / ours.amounts["texts"]
    return Reached(value=value, words=f"{number(value)} us")


def memory_over_best(run: Run) -> Reached | None:
    """Return the peak memory in multiples of that of the peer with the least."""
    ours = _ours(run)
    peers = [r for r in measured(run, "peer") if r.peak_mib]
    if ours is None or ours.peak_mib is None or not peers:
        return None
    least = min(peers, key=lambda r: r.peak_mib or 0.0)
    ratio = ours.peak_mib / (least.peak_mib or 1.0)
    words = f"{ratio:.2f}x ({number(ours.peak_mib)} MiB, {number(least.peak_mib)} MiB)"
    return Reached(value=ratio, words=words, peer=least.candidate)


def memory_over(name: str) -> Quantity:
    """Return the peak memory in multiples of one peer's."""

    def reached(run: Run) -> Reached | None:
        ours, peer = _ours(run), _named(run, name)
        if ours is None or peer is None or not ours.peak_mib or not peer.peak_mib:
            return None
        ratio = ours.peak_mib / peer.peak_mib
        return Reached(value=ratio, words=f"{ratio:.2f}x", peer=name)

    return reached


def rate(what: str) -> Quantity:
    """Return the throughput of one amount, per second."""

    def reached(run: Run) -> Reached | None:
        ours = _ours(run)
        if ours is None or what not in ours.throughput_per_s:
            return None
        value = ours.throughput_per_s[what]
        return Reached(value=value, words=f"{amount(what, value)}/s", limit=_share(ours))

    return reached


def gate_figure(name: str) -> Quantity:
    """Return a figure of the engine's gate, whether it passed or not."""

    def reached(run: Run) -> Reached | None:
        ours = next((r for r in run if r.role == "ours" and name in r.gate), None)
        if ours is None:
            return None
        return Reached(value=ours.gate[name], words=f"{ours.gate[name]:.7g}")

    return reached


def trend(resident: Resident) -> Reached:
    """Return the growth of memory over the second half of a long run."""
    words = f"{100 * resident.trend:+.1f} % of {number(max(resident.mib))} MiB"
    return Reached(value=resident.trend, words=words)


def again(resident: Resident) -> Reached:
    """Return the time of running a finished command again."""
    words = f"{number(resident.again_seconds)} s for {resident.rows:,} rows"
    return Reached(value=resident.again_seconds, words=words)


def minutes_to_run(visit: FrontDoor) -> Reached:
    """Return the minutes of README's first command."""
    return _minutes(visit.run_seconds)


def minutes_to_test(visit: FrontDoor) -> Reached:
    """Return the minutes of README's second command."""
    return _minutes(visit.test_seconds)


def _minutes(seconds: float) -> Reached:
    return Reached(value=seconds / 60, words=f"{number(seconds / 60)} minutes")


def installed_mb(visit: FrontDoor) -> Reached:
    """Return the size of an installation, and its largest part."""
    sizes = visit.installed_mb
    total, largest = sum(sizes.values()), max(sizes, key=lambda name: sizes[name])
    words = f"{number(total)} MB, {largest} {number(sizes[largest])}"
    return Reached(value=total, words=words)


def _ours(run: Run, candidate: str | None = None) -> Result | None:
    """Return the named candidate; else the engine or, for an operation, what calls take."""
    if candidate is not None:
        return _named(run, candidate)
    ours = default(run)
    return None if ours is None or ours.p50_ms is None else ours


def _named(run: Run, name: str | None) -> Result | None:
    return next((r for r in run if r.candidate == name and r.p50_ms is not None), None)


def _ratio(ours: Result, peer: Result, ratio: float) -> Reached:
    limit = _share(ours)
    if peer.fraction_of_limit and ours.amounts == peer.amounts:
        limit += f"; it permits {times(1 / peer.fraction_of_limit)}"
    return Reached(value=ratio, words=times(ratio), peer=peer.candidate, limit=limit)


def _share(ours: Result) -> str:
    return "" if ours.fraction_of_limit is None else f"{ours.fraction_of_limit:.0%}"
