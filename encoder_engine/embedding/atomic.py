"""Files that appear under their name only when whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, BinaryIO

from encoder_engine.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise :class:`OutputError` where a file could not be put under this name."""
    if path.is_dir():
        raise OutputError(f"{path} is a directory; name a file in it")
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; choose another name or allow overwriting (--overwrite)")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is no directory; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path.parent} is not writable; choose another place")


class PendingFile:
    """A file written beside its target under another name, until :meth:`publish`.

    Whatever kills the process before, the target is untouched; a ``.partial`` file may stay.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        check_target(target, overwrite=overwrite)
        self.target = target
        self.overwrite = overwrite
        self.path = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
        try:
            self.stream: BinaryIO = self.path.open("xb")
        except OSError as error:
            raise OutputError(f"{target} cannot be written: {error.strerror}") from error

    def publish(self) -> None:
        """Force the bytes to the disk, then give the file its name."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        if self.overwrite:
            self.path.replace(self.target)
        else:
            _rename_without_replacing(self.path, self.target)
        _sync_directory(self.target.parent)

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            self.stream.close()
        self.path.unlink(missing_ok=True)


def _rename_without_replacing(source: Path, target: Path) -> None:
    """Rename; should the target have appeared meanwhile, leave it and raise."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise OutputError(f"{target} was made meanwhile by another; it is left alone") from None
    except OSError:  # a file system without hard links
        check_target(target, overwrite=False)
        source.replace(target)
        return
    source.unlink()


def _sync_directory(directory: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
