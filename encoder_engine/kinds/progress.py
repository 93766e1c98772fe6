"""The progress bar of a call of a model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(
    total: int | None, *, shown: bool, action: str = "Embedding"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar by a number of rows.

    The bar is drawn if ``shown``, on standard error if that is a terminal. ``total``: the number of
    rows; None: unknown. ``action``: the word before the bar.
    """
    if not shown:
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done: None
        return
    columns = (TextColumn(action), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("embed", total=total)
        yield lambda done: progress.advance(task, done)
