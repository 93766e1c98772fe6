"""A case may be timed by the host, whatever its device."""

from __future__ import annotations

from benchmarks.measuring.runner import LocalRunner
from benchmarks.tests import fakes


def test_a_call_that_ends_on_the_host_is_timed_there() -> None:
    # A GPU's clock would need a GPU.
    runner = LocalRunner(fakes.candidate("ours"), {}, "cuda", host_time=True)
    runner.warm_up()
    assert runner.sample().wall_ms > 0.0
