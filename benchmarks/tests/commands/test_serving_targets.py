"""The measurement of serving's targets runs, and every target of the design is a row."""

from __future__ import annotations

import json
import os

import psutil
import pytest
from click.testing import CliRunner

from benchmarks.commands.serving_targets import Row, _peak_bytes, serving


def test_the_peak_of_this_process_is_at_least_its_memory() -> None:
    assert _peak_bytes(os.getpid()) >= 0.9 * psutil.Process().memory_info().rss


@pytest.mark.exhaustive
def test_a_smoke_run_states_every_row() -> None:
    ran = CliRunner().invoke(serving, ["--smoke"])
    assert ran.exit_code == 0, ran.output
    lines = [line for line in ran.output.splitlines() if line.startswith("{")]
    rows = [Row(**json.loads(line)) for line in lines]
    assert len({row.what for row in rows}) == 10
    assert all(row.met is not None for row in rows)
