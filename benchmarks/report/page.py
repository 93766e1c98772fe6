"""Writes the newest results of each case as one page of Markdown.

Ratios come first, losses in bold, then targets, then who has no figures, then every case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records import results as records
from benchmarks.records.runs import OURS, broken, by_device, disturbed, facing
from benchmarks.records.words import (
    amount,
    case_words,
    count,
    day,
    device_words,
    listed,
    number,
    restricted,
    times,
)
from benchmarks.report.tables import BUSY, RESULT_HEADER, footnotes, markdown_table, result_rows
from benchmarks.report.targets import target_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.records.results import Result
    from benchmarks.records.runs import Facing, Run

# So many cases without a figure are named; of more, the number.
_NAMED = 3
METHOD = (
    "A tool whose results are wrong gets no time. All take turns, and the figure is the median of "
    "the rounds. The newest run of each case and machine counts, whether it is better or worse "
    "than those before. Figures belong to a machine: only ratios taken side by side are compared. "
    "`docs/benchmarks.md` describes the method, `benchmarks/LOG.md` what was tried; "
    "`python -m benchmarks run` measures again."
)


def make_page(results: Sequence[Result]) -> str:
    """Return the page's Markdown. Results of a quick run are compared with no target."""
    title = "# Benchmark results"
    runs = records.latest_runs(results)
    if not runs:
        return f"{title}\n\nNothing has been measured yet: `python -m benchmarks run`.\n"
    days = sorted(day(run[0]) for run in runs)
    cases = count(len({run[0].case for run in runs}), "case")
    machines = listed([f"`{name}`" for name in by_device(runs)])
    reading = (
        f"encoder-engine beside other tools for the same work: {count(len(runs), 'run')} of "
        f"{cases} on {machines}, {days[0]} to {days[-1]}. "
        f"Whatever is slower is shown as such. {METHOD}"
    )
    quick = any(result.quick for run in runs for result in run)
    if quick:
        reading = f"A first answer, on a part of the texts: no target is held to it. {reading}"
    sections = {
        "Summary": [summary_reading(runs), *_ratio_lines(runs)],
        "Targets": [] if quick else target_lines(records.all_runs(results)),
        "Skipped, failed or left out": _missing_lines(runs),
        "Machines, versions, commits": list(_machine_lines(runs)),
        "Every case": [line for run in runs for line in _case_lines(run)],
    }
    lines = [title, "", reading]
    for name, content in sections.items():
        if content:
            lines += ["", f"## {name}", "", *content]
    return "\n".join(lines) + "\n"


def contests(runs: Sequence[Run]) -> list[Run]:
    """Return runs whose ratios count: not with restricted instruction sets, nor of import times."""
    return [run for run in runs if run[0].isa is None and not run[0].case.startswith("import/")]


def losses_of(runs: Sequence[Run]) -> list[Facing]:
    """Return every comparison in which the engine is slower, the worst first."""
    losses = [pair for run in runs for pair in facing(run) if pair.lost]
    return sorted(losses, key=lambda pair: pair.ratio)


def label(pair: Facing) -> str:
    """Name a comparison: its case and, if not the default, the engine's candidate."""
    suffix = pair.ours.candidate.removeprefix(OURS).strip(", ")
    return ", ".join(filter(None, (case_words(pair.ours.case), suffix)))


def summary_reading(runs: Sequence[Run]) -> str:
    """Say in how many cases the engine is faster; name losses and failures of the engine."""
    runs = contests(runs)
    pairs = [pair for run in runs for pair in facing(run)]
    several = [pair for pair in pairs if pair.num_others > 1]
    alone = [pair for pair in pairs if pair.num_others == 1]
    failed = [result for run in runs for result in broken(run)]
    reading = (
        f"In {sum(not pair.lost for pair in several)} of "
        f"{count(len(several) + len(failed), 'comparison')} encoder-engine is at "
        "least as fast as the fastest other tool whose results are right."
    )
    if alone:
        wins = sum(not pair.lost for pair in alone)
        reading += f" Of {len(alone)} more, with one other tool alone, it is in {wins}."
    losses = [f"{label(p)} ({times(p.ratio)} {p.peer.candidate})" for p in losses_of(runs)]
    if losses:
        reading += f" It is slower in: {'; '.join(losses)}."
    if failed:
        named = [f"{case_words(r.case)}, {r.candidate} ({r.reason or r.status})" for r in failed]
        reading += f" It has no right result in: {'; '.join(named)}."
    return reading


def _ratio_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield tables that compare each case with the best peer, one per machine and restriction."""
    header = ["case", "ours, ms", "compared with", "its ms", "times", "of the limit", "day"]
    for of_device in by_device(runs).values():
        for isa, threads in dict.fromkeys((run[0].isa, run[0].threads) for run in of_device):
            alike = [run for run in of_device if (run[0].isa, run[0].threads) == (isa, threads)]
            rows = [_ratio_row(pair) for run in alike for pair in facing(run)]
            if rows:
                yield from ("", f"### {device_words(alike[0][0])}", "")
                yield from markdown_table(header, rows)


def _ratio_row(pair: Facing) -> list[str]:
    limit = pair.ours.fraction_of_limit
    return [
        label(pair),
        number(pair.ours.p50_ms),
        pair.beside,
        number(pair.peer.p50_ms),
        f"**{times(pair.ratio)}, slower**" if pair.lost else times(pair.ratio),
        "" if limit is None else f"{limit:.0%}",
        day(pair.ours),
    ]


def _missing_lines(runs: Sequence[Run]) -> list[str]:
    """Say who has no figures, and why, and which figures were taken on a busy machine."""
    cases: dict[tuple[str, str, str], dict[str, None]] = {}
    for result in (r for run in runs for r in run if r.status != "measured"):
        key = (result.candidate, result.status, result.reason or "")
        cases.setdefault(key, {})[result.case] = None
    order = ("failed", "gate failed", "left out", "skipped")
    rows = []
    for key in sorted(cases, key=lambda key: (order.index(key[1]), key)):
        candidate, status, reason = key
        named, rest = list(cases[key])[:_NAMED], len(cases[key]) - _NAMED
        where = ", ".join(named) + (f" and {rest} more" if rest > 0 else "")
        rows.append([candidate, status.replace("gate failed", "wrong results"), reason, where])
    wrong = sum(status == "gate failed" for _, status, _ in cases)
    lines = [
        "A tool without a figure was not installed, cannot do the work, gave wrong results or was "
        f"far slower than the others; none is left out silently. {wrong} kinds of wrong results "
        "were found and not timed."
    ]
    if rows:
        lines += ["", *markdown_table(["candidate", "what", "why", "in"], rows)]
    busy = sorted({run[0].case for run in runs if disturbed(run, BUSY)})
    if busy:
        words = f"Other processes used more than {BUSY} cores while these were measured"
        lines += ["", f"{words}, so their figures scatter more: {listed(busy)}."]
    return lines


def _machine_lines(runs: Sequence[Run]) -> Iterator[str]:
    """List the machines, libraries and commits of the results."""
    for device, of_device in by_device(runs).items():
        first = of_device[0][0]
        memory = "" if first.memory_gib is None else f", {first.memory_gib} GiB of memory"
        commits = sorted({f"{run[0].commit}{'*' if run[0].dirty else ''}" for run in of_device})
        versions: dict[str, set[str]] = {}
        for run in of_device:
            for name, version in run[0].versions.items():
                versions.setdefault(name, set()).add(version)
        libraries = [f"{name} {' or '.join(sorted(found))}" for name, found in versions.items()]
        yield (
            f"- `{device}`: {first.device_name}, {count(first.cores, 'core')}{memory}; "
            f"{', '.join(first.instruction_sets) or 'no instruction sets recorded'}; "
            f"{count(len(of_device), 'run')}; commits (* with changes): {', '.join(commits)}; "
            f"versions: {', '.join(sorted(libraries))}"
        )


def _case_lines(run: Run) -> Iterator[str]:
    """Write all figures of a case, and its skipped and failed candidates."""
    first = run[0]
    state = " with changes" if first.dirty else ""
    amounts = ", ".join(amount(what, value) for what, value in first.amounts.items())
    yield from (f"### {case_words(first.case)}: `{first.case}`, `{first.device}`", "")
    yield (
        f"{amounts}; {count(first.threads, 'thread')}{restricted(first)}; commit "
        f"{first.commit}{state}; {first.time_utc}."
    )
    rows = result_rows(run)
    if rows:
        yield from ("", *markdown_table(RESULT_HEADER, rows))
    yield from ("", *(f"- {note}" for note in footnotes(run)), "")
