"""Fixtures of the command-line tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from encoder_engine.cli import main
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    output: str
    errors: str


class Run(Protocol):
    """A command line, run in this process."""

    def __call__(self, *arguments: object) -> Result:
        """Run the command with these arguments."""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Give a function that runs a command line and returns its code and output."""

    def run(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a sentence-transformers directory once; nobody changes it."""
    return write_sentence_directory(tmp_path_factory.mktemp("model"))
