"""Names the places whose tests are no unit tests, and imports none of them in ``make check``.

``slow``: starts processes, builds, interprets kernels, compares with a peer library or takes
seconds; in ``make test``. ``exhaustive``: in ``make test-all`` alone. Single tests and cases carry
the marker themselves.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOW = (
    "benchmarks/tests",
    "tests/architecture/test_import_cost.py",
    "tests/architecture/test_readme.py",
    "tests/cli",
    "tests/opening/test_directory_settings.py",
    "tests/jobs/test_workers.py",
    "tests/embedding/test_breadth.py",
    "tests/embedding/test_families.py",
    "tests/embedding/test_parity.py",
    "tests/integrations",
    "tests/kernels",
    "tests/libraries/test_others.py",
    "tests/models/test_checkpoint.py",
    "tests/models/test_company.py",
    "tests/models/test_compile.py",
    "tests/models/test_families.py",
    "tests/models/test_global_rows.py",
    "tests/models/test_gradients.py",
    "tests/models/test_heads.py",
    "tests/models/published/test_published_layouts.py",
    "tests/models/test_quirks.py",
    "tests/models/test_saving.py",
    "tests/native",
    "tests/objectives/vectors/test_beside_library.py",
    "tests/packaging",
    "tests/text/formats/test_sentencepiece.py",
    "tests/text/oracle/test_unicode_tables.py",
    "tests/text/oracle/test_unigram_tables.py",
    "tests/text/parity",
    "tests/text/training",
    "tests/training/device/test_late_reading.py",
    "tests/training/device/test_step_graphs.py",
    "tests/training/test_continuing.py",
    "tests/training/test_distributed.py",
    "tests/training/test_folder.py",
    "tests/training/test_log.py",
    "tests/training/test_non_finite.py",
    "tests/training/test_plausibility.py",
    "tests/training/test_trainer.py",
    "tests/training/test_truth.py",
)
EXHAUSTIVE = (
    "tests/kernels/test_ahead_of_time.py",
    "tests/native/test_sanitizers.py",
    "tests/ops/test_instruction_sets.py",
    "tests/packaging/test_wheel.py",
)


@cache
def is_in(path: Path, places: tuple[str, ...]) -> bool:
    """Say whether a file is one of the places, or lies below one."""
    return any((ROOT / place) in (path, *path.parents) for place in places)


def is_left_out(path: Path, expression: str) -> bool:
    """Say whether ``-m expression`` leaves out every test of a place: it is not even imported."""
    return any(
        f"not {name}" in expression and is_in(path, places)
        for name, places in (("slow", SLOW), ("exhaustive", EXHAUSTIVE))
    )


def add_markers(item: pytest.Item) -> None:
    """Mark a test by the place it is in."""
    for name, places in (("slow", SLOW), ("exhaustive", EXHAUSTIVE)):
        if is_in(item.path, places):
            item.add_marker(name)


class ProcessGuard:
    """Makes a unit test that starts a process fail: half a second each is what made them slow."""

    EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})

    def __init__(self) -> None:
        self._guarded = False
        sys.addaudithook(self._hook)

    @property
    def is_on(self) -> bool:
        """Whether a unit test runs, which may start no process."""
        return self._guarded

    @contextmanager
    def around(self, item: pytest.Item) -> Iterator[None]:
        """Watch while a test runs, unless it is marked."""
        self._guarded = not any(map(item.get_closest_marker, ("slow", "exhaustive", "gpu")))
        try:
            yield
        finally:
            self._guarded = False

    def _hook(self, event: str, _arguments: object) -> None:
        if self._guarded and event in self.EVENTS:
            self._guarded = False
            pytest.fail(f"{event}: a test that starts a process is marked slow")
