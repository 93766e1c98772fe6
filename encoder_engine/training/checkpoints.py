"""Checkpoints of a run: written atomically, verified when read, loadable by any number of ranks.

A checkpoint is a folder ``step-00001000`` written by torch.distributed.checkpoint, with
``state.json`` and ``SHA256SUMS`` in it. It is written as ``_step-00001000.partial`` and renamed
once all of it is on the disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from encoder_engine.errors import (
    CheckpointError,
    CorruptCheckpointWarning,
    EncoderEngineError,
    OutputError,
)
from encoder_engine.files import (
    CHECKSUMS,
    partial_path,
    sync_directory,
    verify_checksums,
    write_atomically,
    write_checksums,
    writing,
)
from encoder_engine.json_values import read_value
from encoder_engine.records import note_resumed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import Tensor, nn

    from encoder_engine.training.world import World

__all__ = ["Checkpoints", "begin_optimizers", "named_state"]

STATE = "state.json"
_NAME = re.compile(r"step-(\d{8})")


class Checkpoints:
    """The checkpoints of a run, in one folder, named by the training step.

    The last ``keep_last`` are kept, and those whose step is a multiple of ``keep_every``.
    """

    def __init__(
        self, directory: Path, world: World, *, keep_last: int, keep_every: int | None
    ) -> None:
        self.directory, self._world = directory, world
        self._keep_last, self._keep_every = keep_last, keep_every

    def steps(self) -> list[int]:
        """List the training steps that have a checkpoint, ascending."""
        if not self.directory.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write the checkpoint of a step; every rank calls this method and writes its shards.

        ``state``: the content of ``state.json``. Raises :class:`OutputError` if writing fails.
        """
        target = self._path(step)
        partial = partial_path(target)
        with self._world.awaiting_first(), writing(target):
            if self._world.is_first:
                self.directory.mkdir(parents=True, exist_ok=True)
                for stale in self.directory.glob("*.partial"):
                    shutil.rmtree(stale)
                partial.mkdir()
        with writing(target), _translated(OutputError, f"{target} could not be written"):
            save(tensors, checkpoint_id=partial, no_dist=self._world.size == 1)
        self._world.wait()
        with self._world.awaiting_first(), writing(target):
            if self._world.is_first:
                write_atomically(partial / STATE, (json.dumps(state) + "\n").encode())
                names = sorted(p.name for p in partial.iterdir() if p.name != CHECKSUMS)
                write_checksums(partial, names)
                shutil.rmtree(target, ignore_errors=True)
                os.replace(partial, target)
                sync_directory(self.directory)
                self._remove_old()

    def _remove_old(self) -> None:
        for step in self.steps()[: -self._keep_last]:
            if self._keep_every is None or step % self._keep_every:
                shutil.rmtree(self._path(step))

    def _path(self, step: int) -> Path:
        return self.directory / f"step-{step:08d}"

    def find(self, num_steps: int) -> tuple[int, dict[str, Any]] | None:
        """Return the step and the state of the last undamaged checkpoint; None: there is none.

        The state is the one that :meth:`save` was given. A damaged checkpoint is renamed to
        ``.damaged``, with a :class:`CorruptCheckpointWarning`, and the one before it is tried.
        num_steps: the length of the run, for a message.
        """
        local = self._find() if self._world.is_first else None
        if local is not None:
            note_resumed(f"step {local[0]:,} of {num_steps:,}", self._path(local[0]) / STATE)
        found: tuple[int, dict[str, Any]] | None = self._world.broadcast(local)
        return found

    def _find(self) -> tuple[int, dict[str, Any]] | None:
        for step in reversed(self.steps()):
            path = self._path(step)
            try:
                if not (path / CHECKSUMS).is_file():
                    raise CheckpointError(f"{path} has no {CHECKSUMS}")
                verify_checksums(path)
                return step, read_value(path / STATE, CheckpointError).object()
            except EncoderEngineError as error:
                # Under its old name it would count towards keep_last.
                aside = path.with_suffix(".damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                warnings.warn(
                    CorruptCheckpointWarning(
                        f"checkpoint {path.name} is skipped: {error}; it is now {aside.name}"
                    ),
                    stacklevel=2,
                )
        return None

    def load(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Read the checkpoint of a step into the given tensors; the number of ranks may differ.

        Raises :class:`CheckpointError` if it cannot be read, or if names or shapes differ.
        """
        path = self._path(step)
        with _translated(CheckpointError, f"{path} could not be read"):
            load(tensors, checkpoint_id=path, no_dist=self._world.size == 1)


@contextmanager
def _translated(kind: type[EncoderEngineError], message: str) -> Iterator[None]:
    """Within this context, turn torch's CheckpointException, a BaseException, into a ``kind``."""
    try:
        with warnings.catch_warnings():
            # torch warns of no_dist, which is intended.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        for cause in causes:
            if not isinstance(cause, Exception):
                raise cause from None
        raise kind(f"{message}: {causes[0]}") from error


def begin_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Make the optimizers create their state, which a checkpoint can then be read into.

    Each takes a step with gradients of 0 at learning rate 0, which is not counted: bias correction
    begins with the first real step.
    """
    for optimizer in optimizers:
        learning_rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        for group, learning_rate in zip(optimizer.param_groups, learning_rates, strict=True):
            group["lr"] = learning_rate
        for state in optimizer.state.values():
            if "step" in state:
                state["step"].zero_()


def named_state(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return every weight and optimizer tensor by its name in a checkpoint."""
    named = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {f"model.{name}": p.detach() for name, p in named.items()}
    names: dict[Tensor, str] = {parameter: name for name, parameter in named.items()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"optimizer.{names[parameter]}.{key}"] = value
    return tensors
