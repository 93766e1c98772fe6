"""Says what a run did not measure, and why: cases left out, and candidates without times."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from benchmarks.records.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchmarks.measuring.case import CaseSpec
    from benchmarks.records.results import Result


def left_out_lines(
    known: Mapping[str, CaseSpec],
    chosen: Collection[str],
    results: Sequence[Result],
    *,
    otherwise: str,
) -> list[str]:
    """Return a Markdown list of what was not measured, an item for each reason.

    ``known``: all cases by name.
    ``chosen``: the names of the run's cases.
    ``otherwise``: the reason for a chosen case that could have run but has no results.
    """
    others = [spec for name, spec in known.items() if name not in chosen]
    on_gpu = [spec for spec in others if "cpu" not in spec.devices]
    more = Counter(s.name.partition("/")[0] for s in others if "cpu" in s.devices)
    measured = {result.case for result in results}
    lines = [
        f"- `{name}`: {known[name].unavailable() or otherwise}"
        for name in chosen
        if name not in measured
    ]
    for reason, names in _skipped(results).items():
        lines.append(f"- {listed(names)}: {reason}")
    if more:
        groups = ", ".join(f"{number} of `{group}`" for group, number in more.items())
        lines.append(
            f"- {count(more.total(), 'more case')} of these groups, so that a quick run takes "
            f"minutes; `python -m benchmarks run` measures them: {groups}"
        )
    if on_gpu:
        lines.append(
            f"- {count(len(on_gpu), 'case')} on an NVIDIA GPU: `python -m benchmarks gpu` there"
        )
    return lines


def _skipped(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the candidates that were not measured, by reason."""
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        if result.status != "measured":
            # The figures of a reason are the case's own.
            alone = result.status != "skipped"
            name = f"{result.candidate} in {result.case}" if alone else result.candidate
            found[result.reason or result.status][name] = None
    return {reason: list(names) for reason, names in found.items()}
