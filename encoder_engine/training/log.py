"""Writes the two logs of a run: computed values, which resumption reproduces, and speeds."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any, Protocol

from encoder_engine.errors import ConfigError, MissingDependencyError, ResumeError
from encoder_engine.files import read_text, write_atomically, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Log", "Tracker", "make_trackers", "read_log"]

LOG, SPEED = "log.jsonl", "speed.jsonl"


class Log:
    """Appends lines of JSON to the two logs of a run.

    ``log.jsonl`` has values that depend only on the recipe: step, tokens, learning rate
    (``rate``), losses, norm of the gradient. A resumed run cuts it back to ``num_bytes``, its
    length at the checkpoint, and appends the same bytes. ``speed.jsonl`` holds times.

    Raises :class:`ResumeError` where ``log.jsonl`` is shorter than ``num_bytes``.
    """

    def __init__(self, directory: Path, *, num_bytes: int) -> None:
        self._path, self._speed_path = directory / LOG, directory / SPEED
        with writing(self._path), self._path.open("ab") as file:
            if file.tell() < num_bytes:
                # truncate() would append zeros to a shorter file.
                raise ResumeError(
                    f"{self._path} has {file.tell()} bytes, and had {num_bytes} at the checkpoint: "
                    "it was cut or removed; put it back from a copy, or name another folder"
                )
            file.truncate(num_bytes)
        with writing(self._path):
            self._file = self._path.open("ab")
        with writing(self._speed_path):
            self._speed = self._speed_path.open("ab")

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a line to ``log.jsonl``, the log of computed values."""
        with writing(self._path):
            self._file.write((json.dumps(record) + "\n").encode())
            self._file.flush()

    def add_speed(self, record: Mapping[str, Any]) -> None:
        """Append a line to ``speed.jsonl``, the log of times and speeds."""
        with writing(self._speed_path):
            self._speed.write((json.dumps(record) + "\n").encode())
            self._speed.flush()

    def sync(self) -> int:
        """Flush ``log.jsonl`` to the disk; return its length in bytes."""
        with writing(self._path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Close both log files."""
        with writing(self._speed_path), self._speed, writing(self._path):
            self._file.close()


def read_log(directory: Path) -> list[dict[str, Any]]:
    """Read the records of ``log.jsonl``; a last line that was cut off is left out."""
    lines = (directory / LOG).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


class Tracker(Protocol):
    """A receiver of log records, such as TensorBoard."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Record the values of a logged training step."""

    def close(self) -> None:
        """Close the receiver; no record follows."""


class _TensorBoard:
    def __init__(self, directory: Path, first_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependencyError(
                "run.trackers: [tensorboard]", library="tensorboard", extra="tensorboard"
            ) from None
        # A resumed run records the steps after the last checkpoint again: hide the first records.
        self._writer: Any = SummaryWriter(str(directory / "tensorboard"), purge_step=first_step)

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in _scalars(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    def __init__(self, directory: Path, _first_step: int) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingDependencyError(
                "run.trackers: [wandb]", library="wandb", extra="wandb"
            ) from None
        # The id of the first start: without it the server would take a resumed run for a new one.
        id_file = directory / "wandb.id"
        if not id_file.exists():
            write_atomically(id_file, f"{secrets.token_hex(8)}\n".encode())
        self._run: Any = wandb.init(
            dir=str(directory),
            name=directory.name,
            id=read_text(id_file, ConfigError).strip(),
            resume="allow",
        )

    def add(self, record: Mapping[str, Any]) -> None:
        self._run.log(_scalars(record), step=record["step"])

    def close(self) -> None:
        self._run.finish()


def _scalars(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _scalars(value, f"{prefix}{name}/")
        elif name != "step" and value is not None:
            found[f"{prefix}{name}"] = float(value)
    return found


def make_trackers(names: Sequence[str], directory: Path, *, first_step: int) -> list[Tracker]:
    """Open the receivers of log records with these names, such as ``tensorboard``.

    ``first_step``: the first step that the trackers will record.
    Raises :class:`MissingDependencyError` for a tracker whose library is not installed.
    """
    kinds: dict[str, Callable[[Path, int], Tracker]] = {
        "tensorboard": _TensorBoard,
        "wandb": _WeightsAndBiases,
    }
    return [kinds[name](directory, first_step) for name in names]
