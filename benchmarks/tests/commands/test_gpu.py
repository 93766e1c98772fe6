"""Tests the GPU run without a GPU: its plan, and that a step that fails or hangs costs no other."""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks.commands import gpu
from benchmarks.commands.gpu import Phase, Step
from benchmarks.measuring.machine import Device
from benchmarks.measuring.measure import measure
from benchmarks.records import results as records
from benchmarks.registry import choose_cases
from benchmarks.tests import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence


def python(name: str, code: str, seconds: float = 60.0) -> Step:
    return Step(name=name, command=[sys.executable, "-c", code], seconds=seconds)


def run(steps: list[Step], folder: Path, seconds: float = 60.0) -> int:
    phase = Phase(name="a phase", steps=steps, jobs=2)
    ends = time.monotonic() + seconds
    return gpu.run_plan([phase], folder, folder / "logs", ends=ends)


def test_a_step_says_how_it_ended_and_a_failure_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [python("right", "print('fine')"), python("wrong", "print('it broke'); exit(3)")]
    assert run(steps, tmp_path) == 1
    printed = capsys.readouterr().out
    assert "right: done after" in printed
    assert "it broke\nwrong: code 3 after" in printed
    assert "failed: wrong" in printed
    assert (tmp_path / "logs" / "right.txt").read_text() == "fine\n"


def test_a_step_that_hangs_is_stopped_with_all_it_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child = "import subprocess as s, sys; p = s.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    code = f"{child}; print(p.pid, flush=True); p.wait()"
    assert run([python("slow", code, seconds=2)], tmp_path) == 1
    assert re.search(r"slow: stopped after \d+ s", capsys.readouterr().out)
    pid = int((tmp_path / "logs" / "slow.txt").read_text())
    command = Path(f"/proc/{pid}/cmdline")
    for _ in range(100):
        with suppress(OSError):
            if command.read_bytes():
                time.sleep(0.05)
                continue
        return
    pytest.fail("what the step started goes on")


def test_a_step_that_is_killed_costs_no_other_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [python("dies", "import os; os.kill(os.getpid(), 11)"), python("lives", "")]
    assert run(steps, tmp_path) == 1
    printed = capsys.readouterr().out
    assert "dies: code -11" in printed
    assert "lives: done" in printed


def test_nothing_starts_that_cannot_end_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([python("late", "print('ran')")], tmp_path, seconds=1) == 1
    assert "late: no time was left" in capsys.readouterr().out


def test_the_correct_steps_come_first_and_the_important_cases_before_others(
    tmp_path: Path,
) -> None:
    names = [spec.name for spec in choose_cases([], "cuda")]
    assert set(gpu.FIRST) <= set(names), "a case of the run has another name"
    phases = {phase.name: phase for phase in gpu.plan(names, cores=16, folder=tmp_path)}
    assert list(phases) == ["correctness", "tests", "cases", "compute-sanitizer"]
    assert phases["tests"].jobs == 14
    assert phases["cases"].jobs == 1
    planned = [name for step in phases["cases"].steps for name in step.cases]
    assert max(len(step.cases) for step in phases["cases"].steps) == gpu.CASES_PER_STEP
    assert tuple(planned[: len(gpu.FIRST)]) == gpu.FIRST
    assert sorted(planned) == sorted(name for name in names if not name.startswith("growth/"))


def test_cases_that_a_broken_process_left_unmeasured_run_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fakes.case(fakes.candidate("encoder-engine triton", role="ours"))
    device = Device(slug="a-gpu", name="A GPU", cores=1)
    lines = records.make_results(case, measure(case, threads=1), device=device, threads=1)
    written = records.append(lines, tmp_path / "once")
    folder = tmp_path / "all"
    folder.mkdir()
    copy = f"import shutil; shutil.copy({str(written)!r}, {str(folder)!r}); "
    code = f"{copy}print('an illegal access'); exit(1)"
    step = replace(python("three cases", code), cases=("fake/case", "breaks", "is right"))
    alone: list[Sequence[str]] = []

    def measure_alone(cases: Sequence[str], _: Path) -> Step:
        alone.append(cases)
        return replace(python(cases[0], f"exit({int(cases[0] == 'breaks')})"), cases=cases)

    monkeypatch.setattr(gpu, "_measure", measure_alone)
    assert run([step], folder) == 1
    printed = capsys.readouterr().out
    assert alone == [["breaks"], ["is right"]]
    assert "an illegal access\nfake/case " in printed
    assert "is right: done" in printed
    assert printed.endswith(f"what was printed in {folder / 'logs'}\n")
    assert "failed: breaks\n" in printed
    # One that breaks behind its last case has failed too.
    folder.rename(tmp_path / "before")
    folder.mkdir()
    assert run([replace(python("two cases", code), cases=("fake/case", "fake/case"))], folder) == 1
    assert "failed: two cases\n" in capsys.readouterr().out


def test_a_wrong_result_is_a_failure_whatever_a_second_run_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = fakes.case(fakes.candidate("encoder-engine triton", lambda: 3, role="ours"))
    device = Device(slug="a-gpu", name="A GPU", cores=1)
    lines = records.make_results(case, measure(case, threads=1), device=device, threads=1)
    written = records.append(lines, tmp_path / "once")
    folder = tmp_path / "all"
    folder.mkdir()
    code = f"import shutil; shutil.copy({str(written)!r}, {str(folder)!r}); exit(1)"
    monkeypatch.setattr(
        gpu, "_measure", lambda cases, _: replace(python(cases[0], ""), cases=cases)
    )
    assert run([replace(python("two cases", code), cases=("fake/case", "left out"))], folder) == 1
    printed = capsys.readouterr().out
    assert "left out: done" in printed
    assert "failed: fake/case\n" in printed


def test_every_test_of_a_gpu_is_planned_and_every_part_of_it(tmp_path: Path) -> None:
    tests = gpu.plan([], cores=4, folder=tmp_path)[1].steps
    files = {step.command[-1] for step in tests if "--part" in step.command}
    found = {
        path.relative_to(gpu.ROOT).as_posix()
        for path in (gpu.ROOT / "tests/ops").rglob("test_*.py")
    }
    assert found | {"tests/models/captured/test_graphs.py"} <= files
    assert all((gpu.ROOT / name).is_file() for name in files)
    parts = [step for step in tests if step.command[-1].endswith("/test_attention.py")]
    assert len(parts) == gpu.PARTS["test_attention.py"]


def test_a_case_is_one_line() -> None:
    case = fakes.case(
        fakes.candidate("encoder-engine triton", role="ours"), fakes.candidate("torch sdpa")
    )
    device = Device(slug="a-gpu", name="A GPU", cores=1)
    lines = records.make_results(case, measure(case, threads=1), device=device, threads=1)
    told = gpu.summary(lines)
    assert told.startswith("fake/case ")
    assert told.endswith(" x torch sdpa")
    broken = [replace(r, p50_ms=None, reason="an illegal access") for r in lines]
    assert "the default was not measured; encoder-engine triton: an illegal" in gpu.summary(broken)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main() == 1
    assert "no CUDA device" in capsys.readouterr().out
