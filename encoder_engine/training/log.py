"""The log of a run: what it computed, which a resumed run continues, and how fast, apart."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any, Protocol

from encoder_engine.errors import ConfigError, MissingDependencyError
from encoder_engine.files import read_text, write_atomically, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Log", "Tracker", "make_trackers", "read_log"]

LOG, SPEED = "log.jsonl", "speed.jsonl"


class Log:
    """Lines of JSON, appended.

    ``log.jsonl`` holds what follows from the recipe alone: step, tokens, learning rate, losses,
    norm of the gradient; cut back to where a checkpoint was and gone on with, it is the same to the
    byte. ``speed.jsonl`` holds times.
    """

    def __init__(self, directory: Path, *, num_bytes: int) -> None:
        self._path, self._speed_path = directory / LOG, directory / SPEED
        with writing(self._path), self._path.open("ab") as file:
            file.truncate(num_bytes)
        with writing(self._path):
            self._file = self._path.open("ab")
        with writing(self._speed_path):
            self._speed = self._speed_path.open("ab")

    def add(self, record: Mapping[str, Any]) -> None:
        """Append what was computed."""
        with writing(self._path):
            self._file.write((json.dumps(record) + "\n").encode())
            self._file.flush()

    def add_speed(self, record: Mapping[str, Any]) -> None:
        """Append how fast."""
        with writing(self._speed_path):
            self._speed.write((json.dumps(record) + "\n").encode())
            self._speed.flush()

    def sync(self) -> int:
        """Force it to the disk; how many bytes there are."""
        with writing(self._path):
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Close the files."""
        with writing(self._speed_path), self._speed, writing(self._path):
            self._file.close()


def read_log(directory: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a log."""
    lines = (directory / LOG).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


class Tracker(Protocol):
    """Something else that is told what is logged."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record of a step."""

    def close(self) -> None:
        """Finish."""


class _TensorBoard:
    def __init__(self, directory: Path, first_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependencyError(
                "run.trackers: [tensorboard]", library="tensorboard", extra="tensorboard"
            ) from None
        # What a run told before it was cut off is hidden from there on.
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
        # Without the id that it was begun under, a run that goes on would be a new one there.
        noted = directory / "wandb.id"
        if not noted.exists():
            write_atomically(noted, f"{secrets.token_hex(8)}\n".encode())
        self._run: Any = wandb.init(
            dir=str(directory),
            name=directory.name,
            id=read_text(noted, ConfigError).strip(),
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
    """Open trackers by name, to be told of steps from the first on.

    :class:`MissingDependencyError` says what brings a missing one.
    """
    kinds: dict[str, Callable[[Path, int], Tracker]] = {
        "tensorboard": _TensorBoard,
        "wandb": _WeightsAndBiases,
    }
    return [kinds[name](directory, first_step) for name in names]
