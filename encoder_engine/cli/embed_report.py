"""What ``embed`` shows: the bar while it runs and the summary at the end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from encoder_engine.cli.common import count, print_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def embed_progress(
    total_bytes: int | None, *, shown: bool
) -> Iterator[Callable[[int, int, int], None]]:
    """Give a function of (bytes read, rows done, tokens done) that moves a bar.

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
        yield lambda _bytes, _rows, _tokens: None
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

        def show(num_bytes: int, rows: int, tokens: int) -> None:
            seconds = max(time.perf_counter() - start, 1e-9)
            rates = (
                f"{count(rows)} rows  {count(rows / seconds)} rows/s  "
                f"{count(tokens / seconds)} tokens/s"
            )
            progress.update(task, completed=num_bytes, rates=rates)

        yield show


def print_summary(summary: dict[str, Any]) -> None:
    """Print the summary of a run, as :meth:`EmbedSummary.as_json` gives it, for people."""
    seconds = summary["seconds"]
    stages = "  ".join(
        f"{stage} {seconds[stage]:.2f}" for stage in ("load", "read", "tokenize", "encode", "write")
    )
    cut = count(summary["truncated_rows"])
    if summary["truncated_rows"]:
        cut += (
            f", longer than {summary['max_seq_length']} tokens: their tails are not in the vectors"
        )
    facts = {
        "vectors": f"{count(summary['rows'])} x {summary['dimension']} in {summary['output']}",
        "tokens": count(summary["tokens"]),
        "truncated rows": cut,
        "seconds": f"{seconds['total']:.2f}: {stages}",
        "throughput": f"{count(summary['rows_per_second'])} rows/s  "
        f"{count(summary['tokens_per_second'])} tokens/s  (loading not counted)",
    }
    print_facts("Done", facts)
