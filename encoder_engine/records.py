"""Locks the folder of a run, and compares settings: only equal ones resume an interrupted run."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.errors import ResumeError
from encoder_engine.files import writing
from encoder_engine.locks import FolderLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from encoder_engine.errors import EncoderEngineError

__all__ = [
    "Difference",
    "describe_changes",
    "differences",
    "locked_folder",
    "note_resumed",
    "refuse_changes",
]

# Gets a line where a run is resumed; the command line prints it.
LOGGER = logging.getLogger(__name__)


class Difference(NamedTuple):
    """A setting that differs; ``name``: its dotted key. A value None: the setting is absent."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        """Return a message that names the setting with its former and present value."""
        return f"{self.name} was {self.before!r:.80}, is {self.now!r:.80}"


def differences(before: Any, now: Any, name: str = "") -> list[Difference]:
    """List the differences of two JSON values, each named by its dotted key.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}})
    [Difference(name='a.b', before=1, now=2), Difference(name='a.c', before=None, now=3)]
    """
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [] if before == now else [Difference(name, before, now)]
    found = []
    for key in sorted({*before, *now}):
        inner = f"{name}.{key}" if name else key
        found += differences(before.get(key), now.get(key), inner)
    return found


def describe_changes(
    before: Any, now: Any, describe: Callable[[Difference], str | None] = str
) -> list[str]:
    """Return a message for each setting that differs; ``describe`` returns None to ignore one."""
    found = [describe(change) for change in differences(before, now)]
    return list(dict.fromkeys(change for change in found if change is not None))


def refuse_changes(
    folder: Path, changes: list[str], advice: str, error: type[EncoderEngineError] = ResumeError
) -> None:
    """Raise ``error`` that lists ``changes``, if any; ``advice``: the end of its message."""
    if changes:
        listed = "; ".join(changes)
        failure = error(f"{folder} was started with other settings: {listed}; {advice}")
        if isinstance(failure, ResumeError):
            failure.changes = tuple(changes)
        raise failure


def note_resumed(done: str, record: Path) -> None:
    """Log ``done``, an earlier run's progress, and the local time at which ``record`` was saved."""
    saved = time.localtime(record.stat().st_mtime)
    is_today = saved[:3] == time.localtime()[:3]
    LOGGER.info(
        "resumed from %s, saved %s", done, time.strftime("%H:%M" if is_today else "%F %H:%M", saved)
    )


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create a folder and lock it while the context lasts.

    Raises :class:`OutputError`, and where another process holds the lock :class:`LockedError`.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        yield
