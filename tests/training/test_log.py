"""Trackers are told so that a run that goes on stays one run there."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from encoder_engine.training.log import make_trackers
from tests.training.runs import run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class _Writer:
    made: list[_Writer] = []  # noqa: RUF012

    def __init__(self, directory: str, *, purge_step: int) -> None:
        self.directory, self.purge_step, self.steps = directory, purge_step, []  # type: ignore[var-annotated]
        self.made.append(self)

    def add_scalar(self, _name: str, _value: float, step: int) -> None:
        self.steps.append(step)

    def close(self) -> None:
        pass


def test_what_tensorboard_saw_beyond_the_checkpoint_is_purged(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=_Writer)
    )
    run(corpus, tmp_path / "run", "run.trackers=[tensorboard]", stop_at=6)
    run(corpus, tmp_path / "run", "run.trackers=[tensorboard]")
    first, second = _Writer.made
    assert (first.purge_step, second.purge_step) == (1, 5)
    assert (max(first.steps), min(second.steps)) == (6, 5)


def test_a_run_of_weights_and_biases_has_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Any]] = []
    monkeypatch.setitem(
        sys.modules, "wandb", SimpleNamespace(init=lambda **options: begun.append(options))
    )
    for folder in ("a", "a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
        make_trackers(["wandb"], tmp_path / folder, first_step=1)
    ids = [options["id"] for options in begun]
    assert ids[0] == ids[1] != ids[2]
    assert all(ids)
