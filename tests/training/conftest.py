"""A corpus for all runs; what a run sets for its process is set back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.training.runs import draw_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_corpus(tmp_path_factory.mktemp("training") / "corpus")


@pytest.fixture(autouse=True)
def _free_again() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
