"""What ``embed`` shows: the bar while it runs and the summary at the end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from encoder_engine.cli.common import count, print_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.embedding.dataset.run import DatasetSummary


@contextmanager
def embed_progress(
    total_bytes: int | None, *, shown: bool
) -> Iterator[Callable[[DatasetSummary, int], None]]:
    """Give a function of (what is done, bytes read) that moves a bar.

    The bar counts input bytes, which are known beforehand, and is on standard error; there is none
    where that is not a terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield lambda _summary, _bytes: None
        return
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
            seconds = max(time.perf_counter() - start, 1e-9)
            rows = summary.rows - summary.resumed_rows
            rates = (
                f"{count(summary.rows)} rows  {count(rows / seconds)} rows/s  "
                f"{count(summary.tokens / seconds)} tokens/s  "
                f"{summary.padding_saved:.0%} padding saved"
            )
            progress.update(task, completed=num_bytes, rates=rates)

        yield show


def print_summary(summary: DatasetSummary) -> None:
    """Print the summary of a run, for people."""
    found = summary.as_json()
    seconds = found["seconds"]
    stages = "  ".join(
        f"{stage} {seconds[stage]:.2f}" for stage in ("load", "read", "tokenize", "encode", "write")
    )
    cut = count(summary.truncated_rows)
    if summary.truncated_rows:
        cut += f", longer than {summary.max_seq_length} tokens: their tails are not in the vectors"
    facts = {
        "vectors": f"{count(summary.rows)} x {summary.dimension} in {summary.output}",
        "tokens": f"{count(summary.tokens)}, and {summary.padding_saved:.0%} of padding saved",
        "truncated rows": cut,
        "seconds": f"{seconds['total']:.2f}: {stages}",
        "throughput": f"{count(found['rows_per_second'])} rows/s  "
        f"{count(found['tokens_per_second'])} tokens/s  (loading not counted)",
    }
    if summary.resumed_rows:
        facts["resumed"] = f"{count(summary.resumed_rows)} rows were there, and are as recorded"
    if summary.skipped_rows:
        facts["skipped rows"] = f"{count(summary.skipped_rows)}, listed in {summary.skipped}"
    print_facts("Done", facts)
