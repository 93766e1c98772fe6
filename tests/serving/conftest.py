"""Fixtures of the serving tests: a tiny model, and a way to slow it down."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.embedding import Embedder
from encoder_engine.serving.models import ServedModel
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small directory once; nobody changes it."""
    return write_sentence_directory(
        tmp_path_factory.mktemp("tiny"),
        settings={"prompts": {"query": "query: "}, "default_prompt_name": None},
    )


@pytest.fixture(scope="session")
def tiny(tiny_directory: Path) -> Embedder:
    """Load the small directory once; nobody changes the embedder."""
    return Embedder.from_pretrained(tiny_directory, device="cpu", num_threads=1)


class Gate:
    """Holds batches back between :meth:`close` and :meth:`open`, and counts their texts."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.num_texts = 0

    def close(self) -> None:
        """Hold the next batches back."""
        self._open.clear()

    def open(self) -> None:
        """Let batches through."""
        self._open.set()

    def wait(self, num_texts: int) -> None:
        """Count a batch, and wait until the gate is open."""
        self.num_texts += num_texts
        if not self._open.wait(timeout=300.0):
            raise TimeoutError("the gate was closed for five minutes")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a gate in front of every model's computation; it is opened at the end."""
    found, compute = Gate(), ServedModel.compute

    def gated(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        found.wait(len(rows))
        return compute(self, task, rows, options)

    monkeypatch.setattr(ServedModel, "compute", gated)
    yield found
    found.open()
