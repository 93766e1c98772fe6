"""Detail sections: tokenizers, operations, missing peers, machines, every case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records.runs import by_device, disturbed, facing, is_operation, measured
from benchmarks.records.words import case_words, count, day, listed, number, times
from benchmarks.report.page import Fold, Items, Section, Table, Text
from benchmarks.report.tables import BUSY, case_blocks
from benchmarks.report.tokenizers import HEADER, is_tokenizer_run, tokenizer_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.runs import Run
    from benchmarks.report.page import Block, Mark

# Groups of which every candidate has a process of its own.
OWN_PROCESSES = ("embedding", "dataset", "latency", "cold_start", "import", "tokenizer", "growth")
# So many cases are named; of more, the number.
_NAMED = 3


def tokenizer_section(runs: Sequence[Run]) -> Section:
    """Return one table of all tokenizer cases for each machine and instruction set."""
    runs = [run for run in runs if is_tokenizer_run(run)]
    title = "Tokenizers"
    if not runs:
        return Section(title=title, reading="No such case has been measured yet.")
    blocks: list[Block] = []
    for device, of_device in by_device(runs).items():
        for isa in dict.fromkeys(run[0].isa for run in of_device):
            told = "" if isa is None else f", restricted to {isa}"
            blocks.append(Text(words=f"{of_device[0][0].device_name} (`{device}`){told}:"))
            rows = [tokenizer_row(run) for run in of_device if run[0].isa == isa]
            blocks.append(Table(header=HEADER, rows=rows))
    pairs = [pair for run in runs if run[0].isa is None for pair in facing(run)[:1]]
    right = sum(pair.ratio >= 1 for pair in pairs)
    reading = (
        "Splitting text into the numbers a model reads; a tool takes part only where every number "
        f"is right. encoder-engine is the fastest in {right} of {count(len(pairs), 'case')}."
    )
    return Section(title=title, reading=reading, blocks=blocks)


def operation_section(runs: Sequence[Run]) -> Section:
    """Return one line per operation: the engine's default implementation against the best peer."""
    runs = [run for run in runs if is_operation(run) and measured(run)]
    title = "Single operations and forward passes"
    if not runs:
        return Section(title=title, reading="No such case has been measured yet.")
    rows: list[list[str]] = []
    marks: dict[int, Mark] = {}
    for run in runs:
        for pair in facing(run):
            if pair.lost:
                marks[len(rows)] = "loss"
            limit = pair.ours.fraction_of_limit
            rows.append(
                [
                    case_words(pair.ours.case),
                    pair.ours.candidate,
                    number(pair.ours.p50_ms),
                    pair.peer.candidate,
                    times(pair.ratio),
                    "" if limit is None else f"{limit:.0%}",
                    f"{pair.ours.device}, {day(pair.ours)}",
                ]
            )
    reading = (
        f"The parts that encoders are made of, one by one: {len(rows) - len(marks)} of "
        f"{count(len(rows), 'case')} are at least as fast as the best other way to compute them."
    )
    header = ["case", "ours", "p50 ms", "best other", "times", "of the limit", "on"]
    return Section(
        title=title, reading=reading, blocks=[Table(header=header, rows=rows, marks=marks)]
    )


def missing_section(runs: Sequence[Run]) -> Section:
    """Who has no figure, and why; which figures were taken on a busy machine."""
    cases: dict[tuple[str, str, str], list[str]] = {}
    for result in (r for run in runs for r in run if r.status != "measured"):
        key = (result.candidate, result.status, result.reason or "")
        cases.setdefault(key, []).append(result.case)
    order = {"failed": 0, "gate failed": 1, "left out": 2, "skipped": 3}
    rows = [
        [candidate, status.replace("gate failed", "wrong results"), reason, _cases(names)]
        for (candidate, status, reason), names in sorted(
            cases.items(), key=lambda item: (order.get(item[0][1], 4), item[0])
        )
    ]
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(header=["candidate", "what", "why", "in"], rows=rows))
    busy = [run[0].case for run in runs if disturbed(run, BUSY)]
    if busy:
        blocks.append(
            Text(
                words=f"Other processes used more than {BUSY} cores while these were measured, so "
                f"their figures scatter more: {listed(sorted(set(busy)))}."
            )
        )
    wrong = sum(status == "gate failed" for _, status, _ in cases)
    reading = (
        "A tool without a figure was not installed, cannot do the work, gave wrong results or was "
        f"far slower than the others; none is left out silently. {wrong} kinds of wrong results "
        "were found and not timed."
    )
    return Section(title="Skipped, failed or left out", reading=reading, blocks=blocks)


def _cases(names: Sequence[str]) -> str:
    unlike = list(dict.fromkeys(names))
    if len(unlike) <= _NAMED:
        return ", ".join(unlike)
    return f"{', '.join(unlike[:_NAMED])} and {len(unlike) - _NAMED} more"


def machine_section(runs: Sequence[Run]) -> Section:
    """List the machines, libraries and commits of the results."""
    blocks: list[Block] = []
    for device, of_device in by_device(runs).items():
        first = of_device[0][0]
        memory = "" if first.memory_gib is None else f", {first.memory_gib} GiB of memory"
        days = sorted({day(run[0]) for run in of_device})
        commits = sorted({f"{run[0].commit}{'*' if run[0].dirty else ''}" for run in of_device})
        blocks.append(
            Items(
                items=[
                    f"`{device}`: {first.device_name}, {count(first.cores, 'core')}{memory}; "
                    f"{', '.join(first.instruction_sets) or 'no instruction sets recorded'}",
                    f"measured {days[0]} to {days[-1]}, {count(len(of_device), 'run')}",
                    f"commits (* with changes): {', '.join(commits)}",
                    f"versions: {', '.join(_versions(of_device))}",
                ]
            )
        )
    reading = (
        "Figures belong to a machine: only ratios taken side by side on the same one are compared."
    )
    return Section(title="Machines, versions, commits", reading=reading, blocks=blocks)


def _versions(runs: Sequence[Run]) -> list[str]:
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run[0].versions.items():
            found.setdefault(name, set()).add(version)
    return [f"{name} {' or '.join(sorted(versions))}" for name, versions in sorted(found.items())]


METHOD = (
    "Results come first: a tool whose results are wrong gets no time. Vectors are held to the "
    "cosine with a float64 reference, tokens to the ids of tokenizers 0.23.",
    "All take turns: every round takes one sample of each tool, so that a change of the machine's "
    "speed falls on all alike. The figure is the median of at least five rounds.",
    "Each tool of an end-to-end case has a process of its own, as many cores, and is also run at "
    "its best setting, which is searched for beforehand. It is stopped while another is timed.",
    "Ratios are against the fastest other tool in the same run; where only one took part, that is "
    "said, and no such ratio is called one against the fastest.",
    "The newest run of each case and machine counts, whether it is better or worse than those "
    "before.",
    "`docs/benchmarks.md` says all of it, and `benchmarks/LOG.md` what we learned, with what was "
    "tried in vain; `python -m benchmarks run` measures again, `python -m benchmarks report` "
    "writes this page.",
)


def method_section() -> Section:
    """Describe the method in short, and list results older than a part of it."""
    reading = "Everything can be measured again with one command, on any machine."
    return Section(title="How it was measured", reading=reading, blocks=[Items(items=METHOD)])


def case_section(runs: Sequence[Run]) -> Section:
    """Every figure of every case."""
    folds = [
        Fold(
            title=f"{case_words(run[0].case)} (`{run[0].case}`, `{run[0].device}`"
            + (f", {run[0].isa}" if run[0].isa else "")
            + f", {count(run[0].threads, 'thread')})",
            blocks=case_blocks(run),
        )
        for run in runs
    ]
    reading = f"All that was recorded of the newest runs: {len(runs)} of them."
    return Section(title="Every case", reading=reading, blocks=folds)
