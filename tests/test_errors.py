"""Errors reach other processes as they were."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from encoder_engine.errors import (
    DeviceMemoryError,
    EncoderEngineError,
    MissingDependencyError,
    OutputError,
    ResumeError,
)


@pytest.mark.parametrize(
    "error",
    [
        OutputError("it is full"),
        ResumeError("it was started with other settings", changes=["run.seed was 1, is 2"]),
        MissingDependencyError("YAML", library="pyyaml", extra="training"),
        MissingDependencyError("a DataFrame", library="pandas"),
        DeviceMemoryError("it is too long", row=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_another_process_is_told_the_same_error(error: EncoderEngineError) -> None:
    told = pickle.loads(pickle.dumps(error))
    assert type(told) is type(error)
    assert str(told) == str(error)
    assert vars(told) == vars(error)


def test_a_missing_library_comes_by_commands_that_work_wherever_they_are_run() -> None:
    """This package is on no index, so its extras can be asked of a checkout alone."""
    told = str(MissingDependencyError("writing .lance", library="pylance", extra="lance"))
    assert told.endswith("pip install 'pylance', or in the checkout: pip install '.[lance]'")
    package = Path(__file__).parents[1]
    for folder in ("encoder_engine", "benchmarks", "examples"):
        for path in (package / folder).rglob("*.py"):
            assert "pip install 'encoder-engine[" not in path.read_text("utf-8"), path
