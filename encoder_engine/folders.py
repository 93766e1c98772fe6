"""Replaces a folder as a whole: readers see either the old folder or the new one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from typing import TYPE_CHECKING

from encoder_engine.files import partial_path, sync_directory, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["exchange_folders", "replacing_folder"]


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder beside the target, which gets the target's name when the context ends.

    An existing folder is exchanged for the new one and removed; after an exception it is unchanged.
    Raises :class:`OutputError` in place of an OSError.
    """
    place = target.resolve()  # a link stays a link
    new = partial_path(place, os.urandom(4).hex())
    with writing(target):
        new.mkdir(parents=True)
        try:
            yield new
            exchange_folders(new, place) if place.is_dir() else new.rename(place)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_directory(place.parent)
        shutil.rmtree(new, ignore_errors=True)


def exchange_folders(first: Path, second: Path) -> None:
    """Exchange the names of two folders, in one step on Linux and macOS.

    On other systems ``second`` does not exist for a moment, and stays missing after a kill in that
    moment.
    """
    library, names = ctypes.CDLL(None), (os.fsencode(first), os.fsencode(second))
    # RENAME_EXCHANGE, after AT_FDCWD before each path, and RENAME_SWAP; both return 0.
    if hasattr(library, "renameat2") and not library.renameat2(-100, names[0], -100, names[1], 2):
        return
    if hasattr(library, "renamex_np") and not library.renamex_np(*names, 2):
        return
    former = second.rename(partial_path(second, f"{os.urandom(4).hex()}.former"))
    try:
        first.rename(second)
    except OSError:
        former.rename(second)
        raise
    former.rename(first)
