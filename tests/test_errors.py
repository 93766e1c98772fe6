"""Errors reach other processes as they were."""

from __future__ import annotations

import pickle

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
        ResumeError("it was begun otherwise", changes=["run.seed was 1, is 2"]),
        MissingDependencyError("YAML", library="pyyaml", extra="training"),
        DeviceMemoryError("it is too long", row=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_another_process_is_told_the_same_error(error: EncoderEngineError) -> None:
    told = pickle.loads(pickle.dumps(error))
    assert type(told) is type(error)
    assert str(told) == str(error)
    assert vars(told) == vars(error)
