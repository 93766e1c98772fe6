"""Locks a folder, so that one run at a time writes it; by ``flock``."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import warnings
from typing import TYPE_CHECKING, Self

from encoder_engine.errors import EncoderEngineWarning, LockedError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOCK_NAME", "FolderLock", "refuse_locked"]

# A name that no other program uses; readers of data skip names that begin with a dot.
LOCK_NAME = ".encoder-engine.lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_LOCK_CONTENT = re.compile(rb"(\d{1,20}\n?)?")
# A check whether a folder is locked holds its lock for some microseconds.
_LOCK_SECONDS = 0.1
_LOCK_PAUSE = 0.005


def _refuse_without_locks(folder: Path) -> None:
    """Raise :class:`OutputError` on Windows, which lacks ``flock`` and ``O_NOFOLLOW``."""
    if not hasattr(os, "O_NOFOLLOW"):
        raise OutputError(
            f"{folder} cannot be locked: this system has no flock, so two runs may "
            "write the same folder; compute in memory here, or write it on Linux or macOS"
        )


def refuse_locked(folder: Path) -> None:
    """Raise :class:`LockedError` if a process holds the folder's lock; change nothing.

    Any number of processes may check at once, by a shared lock. Raises :class:`OutputError` on
    Windows.
    """
    _refuse_without_locks(folder)
    import fcntl

    path = folder / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # none is there; or one that cannot be taken, and then taking it says why
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(folder, descriptor) from None
    except OSError:
        return
    finally:
        os.close(descriptor)


def _held(folder: Path, descriptor: int) -> LockedError:
    holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
    named = f" (process {holder})" if _alive(holder) else ""
    return LockedError(
        f"{folder} is being written by another run{named}; wait for it, stop it, or name another "
        "output"
    )


def _alive(process: str) -> bool:
    """Return whether a process of this number is running; a lock file may name one that ended."""
    if not process.isdecimal() or int(process) == 0:
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True  # another user's
    except (OSError, OverflowError):
        return False
    return True


class FolderLock:
    """A context that one process at a time enters for a folder: holds a lock file, then removes it.

    The system releases the lock of a killed process: a lock file without a holder is taken over. On
    a file system without locks, entering warns and locks nothing.
    Raises :class:`LockedError` where another process holds the lock. Raises :class:`OutputError` on
    Windows, and for a file or link of that name that is not a lock, which is left alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCK_NAME
        self._descriptor = -1

    def __enter__(self) -> Self:
        _refuse_without_locks(self._folder)
        try:
            while not self._take():
                pass
        except OutputError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._not_ours("is a symbolic link") from error
            raise OutputError(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
        return self

    def _take(self) -> bool:
        """Open and lock the lock file; return False if its holder removed it in between."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o644)
        try:
            self._lock(descriptor)
            held = os.fstat(descriptor)
            try:
                same = os.path.samestat(held, self._path.lstat())
            except FileNotFoundError:
                same = False
            if same:
                self._refuse_others(descriptor, held)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BaseException:
            os.close(descriptor)
            raise
        if not same:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _lock(self, descriptor: int) -> None:
        import fcntl

        try:
            for _ in range(round(_LOCK_SECONDS / _LOCK_PAUSE)):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                time.sleep(_LOCK_PAUSE)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                EncoderEngineWarning(
                    f"the file system of {self._folder} has no locks ({error.strerror}); do not "
                    "start a second run there before this one ends"
                ),
                stacklevel=4,
            )
            return
        raise _held(self._folder, descriptor)

    def _refuse_others(self, descriptor: int, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._not_ours("is not a plain file")
        if status.st_nlink > 1 or not _LOCK_CONTENT.fullmatch(os.pread(descriptor, 64, 0)):
            raise self._not_ours("was written by another program")

    def _not_ours(self, reason: str) -> OutputError:
        return OutputError(
            f"{self._path} {reason}, so the folder cannot be locked; move it away, or name another "
            "folder"
        )

    def exchange(self, other: FolderLock) -> None:
        """Exchange the paths of two locks, after their folders have exchanged names."""
        self._path, other._path = other._path, self._path

    def __exit__(self, *_details: object) -> None:
        # Removed while the lock is held: a process that opened it meanwhile sees that it is gone.
        try:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)
