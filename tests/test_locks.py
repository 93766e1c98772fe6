"""A folder is locked by one run at a time, and a lock of a run that ended is taken over."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from encoder_engine import locks
from encoder_engine.errors import EncoderEngineWarning, LockedError, OutputError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_nothing_can_be_locked_a_run_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_descriptor: int, _kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(
            EncoderEngineWarning, match="has no locks .*do not start a second run"
        ) as caught,
        locks.FolderLock(tmp_path),
    ):
        assert (tmp_path / locks.LOCK_NAME).read_text("ascii") == f"{os.getpid()}\n"
    assert caught[0].filename == __file__
    assert not (tmp_path / locks.LOCK_NAME).exists()


def test_a_system_without_locks_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_NOFOLLOW")
    for lock in (locks.refuse_locked, lambda folder: locks.FolderLock(folder).__enter__()):
        with pytest.raises(OutputError, match=r"cannot be locked: .*compute in memory here"):
            lock(tmp_path)
    assert not list(tmp_path.iterdir())


def test_many_may_look_at_a_lock_at_once(tmp_path: Path) -> None:
    path = tmp_path / locks.LOCK_NAME
    path.write_text("4711\n", encoding="ascii")
    with path.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        locks.refuse_locked(tmp_path)
    assert path.read_text("ascii") == "4711\n"


def test_a_run_begins_while_another_looks_at_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_LOCK_SECONDS", 60.0)
    path = tmp_path / locks.LOCK_NAME
    path.write_text("4711\n", encoding="ascii")
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    looking = threading.Timer(0.03, os.close, [descriptor])
    looking.start()
    with locks.FolderLock(tmp_path):
        assert path.read_text("ascii") == f"{os.getpid()}\n"
    looking.join()


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["running", "gone", "none", "nobody"])
def test_a_lock_names_its_holder_only_where_that_runs(tmp_path: Path, holder: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    numbers = {"running": str(os.getpid()), "gone": str(ended.pid), "none": "", "nobody": "0"}
    path = tmp_path / locks.LOCK_NAME
    path.write_text(f"{numbers[holder]}\n", encoding="ascii")
    words = rf"another run{rf' .process {os.getpid()}.' if holder == 'running' else ''};"
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match=words):
            locks.refuse_locked(tmp_path)
        with pytest.raises(LockedError, match=words):
            locks.FolderLock(tmp_path).__enter__()
