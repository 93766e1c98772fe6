"""Prints the progress of ``embed`` while it runs, and a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from encoder_engine.cli.common import count, line_due, print_facts

if TYPE_CHECKING:
    from rich.console import Console

    from encoder_engine.jobs.run import DatasetSummary


Show = Callable[["DatasetSummary", int], None]


@contextmanager
def embed_progress(total_bytes: int | None, *, shown: bool) -> Iterator[Show]:
    """Yield a callback of (summary so far, bytes read) that shows progress on standard error.

    Progress is a bar on a terminal, elsewhere a line every 10 s. Both count input bytes, whose
    total is known in advance.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not shown:
        yield lambda _summary, _bytes: None
    elif console.is_terminal:
        with _bar(console, total_bytes) as show:
            yield show
    else:
        yield _lines(total_bytes)


@contextmanager
def _bar(console: Console, total_bytes: int | None) -> Iterator[Show]:
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("Embedding"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rates]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("embed", total=total_bytes, rates="")
        start = time.perf_counter()

        def show(summary: DatasetSummary, num_bytes: int) -> None:
            rates = _rates(summary, time.perf_counter() - start)
            progress.update(task, completed=num_bytes, rates=rates)

        yield show


def _rates(summary: DatasetSummary, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    rows = summary.rows - summary.resumed_rows
    return (
        f"{count(summary.rows)} rows  {count(rows / seconds)} rows/s  "
        f"{count(summary.tokens / seconds)} tokens/s  "
        f"{summary.padding_saved:.0%} padding saved"
    )


def _lines(total_bytes: int | None) -> Show:
    """Return a callback that prints a line of progress every 10 s, without rows of earlier runs."""
    start, due = time.monotonic(), line_due()
    resumed_bytes = 0

    def show(summary: DatasetSummary, num_bytes: int) -> None:
        nonlocal start, resumed_bytes
        now = time.monotonic()
        if summary.rows == summary.resumed_rows:
            start, resumed_bytes = now, num_bytes
        if not due():
            return
        read = num_bytes - resumed_bytes
        left = ""
        if total_bytes is not None and read > 0 and now > start:
            seconds = (total_bytes - num_bytes) * (now - start) / read
            left = f"  {num_bytes / total_bytes:.0%}, {_duration(seconds)} left"
        click.echo(f"Embedding  {_rates(summary, now - start)}{left}", err=True)

    return show


def _duration(seconds: float) -> str:
    """Format a remaining time: 40 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def print_summary(summary: DatasetSummary) -> None:
    """Print the summary of a run."""
    from encoder_engine.inputs.opening import shown_name

    found = summary.as_json()
    seconds = found["seconds"]
    stages = "  ".join(
        f"{stage} {seconds[stage]:.2f}" for stage in ("load", "read", "tokenize", "encode", "write")
    )
    cut = count(summary.truncated_rows)
    if summary.truncated_rows:
        cut += (
            f", longer than {summary.max_seq_length} tokens: their tails are not in the vectors "
            "(--max-seq-length sets the limit)"
        )
    facts = {"vectors": f"{count(summary.rows)} x {summary.dimension} in {summary.output}"}
    if summary.rows == summary.resumed_rows and not summary.growth:
        facts["nothing left to do"] = "all rows were there, and are as recorded"
        facts["truncated rows"] = cut
    else:
        saved = f"{summary.padding_saved:.0%} of padding saved"
        facts |= {
            "tokens": f"{count(summary.tokens)}, and {saved}",
            "truncated rows": cut,
            "seconds": f"{seconds['total']:.2f}: {stages}",
            "throughput": f"{count(found['rows_per_second'])} rows/s  "
            f"{count(found['tokens_per_second'])} tokens/s  (loading not counted)",
        }
        if summary.resumed_rows:
            facts["resumed"] = f"{count(summary.resumed_rows)} rows were there, and are as recorded"
    if summary.growth:
        facts["appended"] = (
            "{added:,} added, {replaced:,} replaced, {dropped:,} dropped: generation {generation}"
        ).format(**summary.growth)
    if summary.recognised:
        named = [f"{shown_name(name)}: {kind}" for name, kind in summary.recognised.items()]
        facts["recognised"] = "\n".join(
            named[:3] + [f"{len(named)} files in all"] * (len(named) > 3)
        )
    if summary.skipped_rows:
        facts["skipped rows"] = f"{count(summary.skipped_rows)}, listed in {summary.skipped}"
    print_facts("Done", facts)
