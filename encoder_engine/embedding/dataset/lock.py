"""One run at a time in a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from encoder_engine.errors import LockedError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = ".lock"


class FolderLock:
    """Holds the folder's lock file from entry to exit, when the file goes.

    The system frees the lock of a process that was killed: a lock file nobody holds is taken over.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LOCK_NAME
        self._descriptor = -1

    def __enter__(self) -> Self:
        try:
            while not self._take():
                pass
        except LockedError:
            raise
        except OSError as error:
            raise OutputError(
                f"{self._path} cannot be written: {error.strerror or error}"
            ) from error
        return self

    def _take(self) -> bool:
        """Open and lock the file; False where its holder removed it in between."""
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode("ascii", "replace").strip()
            os.close(descriptor)
            named = f" (process {holder})" if holder else ""
            raise LockedError(
                f"{self._folder} is being written by another run{named}; wait for it, stop it, or "
                "name another output"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        held = os.fstat(descriptor)
        if not self._path.exists() or not os.path.samestat(held, self._path.stat()):
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor = descriptor
        return True

    def __exit__(self, *_details: object) -> None:
        # Removed while it is still held: whoever opened it in between sees that it is gone.
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
