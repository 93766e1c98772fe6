"""Manages memory for the extension: aligned arrays, their addresses, and mapped files."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import CheckpointFileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array

__all__ = ["MappedFiles", "WeightMemory", "address", "aligned_bytes"]

# A cache line, and the widest vector of any instruction set.
ALIGNMENT = 64
# NumPy asks for huge pages from 4 MiB on. What is never written to takes no memory.
BLOCK = 32 << 20
# Samples of a mapped file's content. Fine-tuned models of one base differ in nearly every byte.
NUM_SAMPLES, SAMPLE_BYTES = 16, 64


def aligned_bytes(count: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised memory of ``count`` bytes that begins at a cache line."""
    whole = np.empty(count + ALIGNMENT, dtype=np.uint8)
    first = -address(whole) % ALIGNMENT
    return whole[first : first + count]


class WeightMemory:
    """Allocates memory of packed weights, one after the other in blocks of huge pages.

    A weight of less than 4 MiB, as all of MiniLM's are, would otherwise be in pages of 4 KiB. With
    huge pages one short text takes 4 to 10 % less time (benchmarks/LOG.md, "Short texts").
    """

    def __init__(self) -> None:
        self._rest = np.empty(0, dtype=np.uint8)

    def take(self, count: int) -> npt.NDArray[np.uint8]:
        """Return uninitialised memory of ``count`` bytes that begins at a cache line."""
        whole_lines = -(-count // ALIGNMENT) * ALIGNMENT
        if len(self._rest) < whole_lines:
            self._rest = aligned_bytes(max(whole_lines, BLOCK))
        taken, self._rest = self._rest[:count], self._rest[whole_lines:]
        return taken


def address(array: Array | None) -> int:
    """Return the address of a contiguous array's first element; 0 for None."""
    if array is None:
        return 0
    place: tuple[int, Any] = array.__array_interface__["data"]
    return place[0]


class MappedFiles:
    """Memory-mapped files of a model, with a check that they were not written to since.

    A file that another one replaces under its name keeps its mapped pages. A file that is written
    to does not: its size or modification time has changed then. Where only the status change time
    differs, as after a rename, a change of owner, or a copy that restored the other two, samples of
    the content are compared. The files stay open, so neither relative paths nor new files of the
    same name matter.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._found: list[_Mapped] = []
        for path in paths:
            try:
                number = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise CheckpointFileError(f"{path} cannot be opened: {error.strerror}") from error
            self._found.append(_Mapped(path, number))
        weakref.finalize(self, _close, [one.number for one in self._found])

    def check(self) -> None:
        """Raise :class:`CheckpointFileError` if a file was written to since it was mapped."""
        for one in self._found:
            if one.was_written():
                raise CheckpointFileError(
                    f"{one.path} was written to while an encoder reads its pages; load the encoder "
                    "again, and replace a model's files by renaming new ones over them"
                )


class _Mapped:
    """An open file, its status when it was mapped, and samples of its content."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        self._status = os.fstat(number)
        self._samples = self._read_samples()

    def was_written(self) -> bool:
        now, before = os.fstat(self.number), self._status
        if now.st_mtime_ns != before.st_mtime_ns or now.st_size != before.st_size:
            return True
        if now.st_ctime_ns == before.st_ctime_ns:
            return False
        if self._read_samples() != self._samples:
            return True
        self._status = now
        return False

    def _read_samples(self) -> list[bytes]:
        if not hasattr(os, "pread"):
            return []  # on Windows, whose st_ctime is of the file's creation: it never changes
        step = max(self._status.st_size // NUM_SAMPLES, 1)
        places = range(step // 2, self._status.st_size, step)
        return [os.pread(self.number, SAMPLE_BYTES, place) for place in places]


def _close(numbers: list[int]) -> None:
    for number in numbers:
        os.close(number)
