"""What the GPU script does before it needs a GPU: commands that pass, fail and hang."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.commands import gpu


def run(code: str, seconds: int = 60) -> bool:
    return gpu._run("a step", [sys.executable, "-c", code], seconds)


def test_a_step_says_what_it_printed_and_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("print('all is well')")
    assert "all is well\n== a step: done" in capsys.readouterr().out
    assert not run("print('it broke'); raise SystemExit(3)")
    assert "it broke\n== a step: failed with code 3" in capsys.readouterr().out


def test_a_step_that_hangs_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert not run("import time; time.sleep(60)", seconds=1)
    assert "== a step: stopped after 1 s" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main() == 1
    assert "no CUDA device" in capsys.readouterr().out
