"""One thread for everything: nothing is timed here, and other tests may run beside."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def collected() -> None:
    """Keep what other tests left out of the garbage collection that every measurement has."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
