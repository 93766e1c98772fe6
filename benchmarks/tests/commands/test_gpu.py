"""Tests the GPU run without a GPU: its plan, its ledger, and that no step costs another its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.commands import gpu
from benchmarks.commands.gpu import Piece
from benchmarks.gpu import plan as plans
from benchmarks.gpu.ledger import NAME, Ledger, make_key
from benchmarks.gpu.plan import Phase, Step, account, plan
from benchmarks.gpu.processes import Runner
from benchmarks.measuring.machine import ROOT, Device
from benchmarks.measuring.measure import measure
from benchmarks.records import results as records
from benchmarks.registry import choose_cases
from benchmarks.tests import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS = {"device": "A GPU", "torch": "2", "triton": "3", "transformers": "5"}


def python(name: str, code: str, **others: Any) -> Step:
    """Return a step that runs a program's text."""
    command = (sys.executable, "-c", code)
    return replace(Step(name=name, command=command, seconds=1.0, sources=()), **others)


def entries_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / NAME
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "logs", "cpu")


def run(
    steps: Sequence[Step], folder: Path, runner: Runner, *, facts: dict[str, str] = FACTS
) -> Piece:
    piece = Piece(folder, runner, facts=facts, ends=time.monotonic() + 60)
    piece.run([Phase(name="a phase", steps=steps, jobs=2)])
    return piece


@pytest.mark.slow
def test_a_step_says_how_it_ended_and_a_failure_why(
    tmp_path: Path, runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        python("right", "print('fine')"),
        python("wrong", "print('it broke'); exit(3)"),
        python("dies", "import os; os.kill(os.getpid(), 11)"),
    ]
    assert not run(steps, tmp_path, runner).succeeded
    printed = capsys.readouterr().out
    assert "right: passed after" in printed
    assert "it broke\nwrong: failed with 3 after" in printed
    assert "dies: failed with -11 after" in printed
    log = (tmp_path / gpu.LOG).read_text("utf-8")
    assert "== right: passed after" in log
    assert "\nfine\n" in log
    entries = entries_of(tmp_path)
    assert {e["step"]: e["outcome"] for e in entries} == {
        "right": "passed",
        "wrong": "failed",
        "dies": "failed",
    }
    assert [e["message"] for e in entries if e["step"] == "wrong"] == ["it broke"]


@pytest.mark.slow
def test_a_step_that_hangs_is_stopped_with_all_it_started_and_runs_once_more(
    tmp_path: Path,
    runner: Runner,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "LIMIT_SECONDS", 2)
    child = "import subprocess as s, sys; p = s.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    slow = python("slow", f"{child}; print(p.pid, flush=True); p.wait()", again=True)
    piece = run([slow], tmp_path, runner)
    assert capsys.readouterr().out.count("slow: stopped after 2 s") == 2
    assert piece.counts["stopped"] == 2
    assert not piece.succeeded
    pid = int(runner.log_of(slow).read_text("utf-8"))
    command = Path(f"/proc/{pid}/cmdline")
    for _ in range(100):
        with suppress(OSError):
            if command.read_bytes():
                time.sleep(0.05)
                continue
        return
    pytest.fail("what the step started goes on")


@pytest.mark.slow
def test_what_passed_is_skipped_until_its_sources_or_the_machine_change(
    tmp_path: Path, runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "kernel.py"
    source.write_text("first", "utf-8")
    steps = [
        python("fails", "print('ran fails'); exit(1)", sources=(str(source),)),
        python("passes", "print('ran passes')", sources=(str(source),)),
    ]
    run(steps, tmp_path, runner)
    capsys.readouterr()
    # What failed runs again, behind what never ran.
    new = python("new", "")
    piece = run([*steps, new], tmp_path, runner)
    printed = capsys.readouterr().out
    assert piece.counts == {"passed": 1, "failed": 1, "stopped": 0, "skipped": 1, "left": 0}
    assert printed.index("new: passed") < printed.index("== what did not pass before")
    assert run([steps[1]], tmp_path, runner, facts=FACTS | {"triton": "4"}).counts["passed"] == 1
    source.write_text("second", "utf-8")
    assert run([steps[1]], tmp_path, runner).counts["passed"] == 1
    assert run([steps[1]], tmp_path, runner).counts["skipped"] == 1


@pytest.mark.slow
def test_what_the_end_of_a_run_cut_off_is_left_for_the_next(tmp_path: Path, runner: Runner) -> None:
    cut = python("cut", "import time; time.sleep(60)", again=True)
    piece = Piece(tmp_path, runner, facts=FACTS, ends=time.monotonic() + 3)
    piece.run([Phase(name="a phase", steps=[cut])])
    assert (piece.counts["left"], piece.counts["stopped"]) == (1, 0)
    assert entries_of(tmp_path) == []


@pytest.mark.slow
def test_a_step_waits_for_the_steps_that_have_to_pass(
    tmp_path: Path, runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    check, step = python("check", "exit(1)"), python("step", "1", after=("check",))
    assert run([check], tmp_path, runner).counts["failed"] == 1
    assert run([step], tmp_path, runner).counts["left"] == 1
    assert "step: left, as this has not passed: check" in capsys.readouterr().out
    check = python("check", "2")
    piece = Piece(tmp_path, runner, facts=FACTS, ends=time.monotonic() + 60)
    piece.run([Phase(name="checks", steps=[check]), Phase(name="cases", steps=[step])])
    assert piece.counts["passed"] == 2
    # What passed in another run counts as well.
    again = python("another", "3", after=("check",))
    piece = Piece(tmp_path, runner, facts=FACTS, ends=time.monotonic() + 60)
    piece.run([Phase(name="checks", steps=[check]), Phase(name="cases", steps=[again])])
    assert (piece.counts["skipped"], piece.counts["passed"]) == (1, 1)


@pytest.mark.slow
def test_nothing_starts_that_cannot_end_in_time(tmp_path: Path, runner: Runner) -> None:
    late = python("late", "", seconds=1000.0)
    piece = run([late, python("short", "")], tmp_path, runner)
    assert (piece.counts["left"], piece.counts["passed"]) == (1, 1)


@pytest.mark.exhaustive
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_rehearsal_that_is_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "gpu", "--rehearse", "--seconds", "600"]
    environment = os.environ | {"OUT": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def passed() -> list[str]:
        return [entry["step"] for entry in entries_of(tmp_path)]

    for before in (0, 3):
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            while len(passed()) < before + 3:
                assert process.poll() is None, "the rehearsal ended by itself"
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            printed, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        assert (f"{before} passed before" in printed) == (before > 0)
    assert len(set(passed())) == len(passed())


def test_the_plan_begins_with_checks_and_has_every_case_once() -> None:
    specs = choose_cases([], "cuda")
    phases = {phase.name: phase for phase in plan(specs, cores=16)}
    names = [spec.name for spec in specs]
    assert {*plans.VARIANTS, *plans.FIRST, *plans.GRAPHS, *plans.ATTENTION, *plans.GLUON} <= set(
        names
    ), "a case has another name"
    assert list(phases)[:4] == ["first checks", "checks of Gluon", "variants", "training"]
    assert phases["tests"].jobs == 14
    measured = [step for phase in phases.values() if phase.jobs == 1 for step in phase.steps]
    cases = [s.command[2] for s in measured if s.again is False]
    assert sorted(cases) == sorted(names)
    assert sorted(s.command[2] for s in measured if s.again) == [
        *sorted(n for n in names if "training" not in n and "tuning_gpu" in n),
        *sorted(n for n in names if "pretraining_gpu" in n),
    ]
    assert all(
        step.seconds <= gpu.LIMIT_SECONDS for phase in phases.values() for step in phase.steps
    )
    assert all((ROOT / source).exists() for step in measured for source in step.sources)


def test_the_sources_of_a_step_are_its_kernels_and_its_case(tmp_path: Path) -> None:
    steps = {
        step.name: step for phase in plan(choose_cases([], "cuda"), cores=2) for step in phase.steps
    }
    attention = steps["attention_2k/training-equal"].sources
    assert {"kernels/attention", "benchmarks/cases/ops/attention.py"} <= set(attention)
    assert "kernels" not in attention
    assert "encoder_engine/training" in steps["pretraining_gpu/base-equal-32k"].sources
    source = tmp_path / "kernel.py"
    keys = set()
    for text in ("first = 1", '"""One."""\nfirst  =  1  # one', "first = 2"):
        source.write_text(text, "utf-8")
        keys.add(make_key("ab", [str(source)], []))
    assert len(keys) == 2
    assert make_key("ab", ["kernels/attention"], []) != make_key("ab", ["kernels/pooling"], [])


def test_attention_in_gluon_is_measured_after_its_checks_alone() -> None:
    steps = [step for phase in plan(choose_cases([], "cuda"), cores=2) for step in phase.steps]
    names = [step.name for step in steps]
    waiting = [step for step in steps if step.after]
    assert [step.name for step in waiting] == list(plans.GLUON)
    for step in waiting:
        assert all(names.index(check) < names.index(step.name) for check in step.after)
    awaited = {name for step in waiting for name in step.after}
    assert awaited == {step.name for step in steps if "--gluon" in step.command}


def test_every_test_of_a_gpu_is_planned_and_every_part_of_it() -> None:
    phases = {phase.name: phase for phase in plan([], cores=4)}
    tests = [*phases["first checks"].steps, *phases["tests"].steps]
    files = {step.command[-1] for step in tests if "--part" in step.command}
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/ops").rglob("test_*.py")}
    apart = {"tests/models/captured/test_graphs.py", "tests/training/test_on_gpu.py"}
    assert found | apart <= files
    assert all((ROOT / name).is_file() for name in files)
    parts = [step for step in tests if step.command[-1].endswith("/test_attention.py")]
    assert len(parts) == plans.PARTS["test_attention.py"]


def test_the_account_tells_when_a_phase_begins() -> None:
    check, case = python("a check", "", seconds=100.0), python("a case", "", seconds=30.0)
    phases = [
        Phase(name="checks", steps=[check] * 2, jobs=2),
        Phase(name="cases", steps=[case, replace(case, name="another")]),
    ]
    assert account(phases, lambda step: step.seconds).splitlines() == [
        "checks: 2 steps from second 0 on",
        "cases: 2 steps from second 100 on",
        *("    a case, 30 s", "    another, 30 s", "ends after 160 s"),
    ]


def test_the_ledger_of_results_is_read_beside_that_of_the_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "results", tmp_path / "out"
    entry = {"key": "k", "step": "s", "commit": "c", "time_utc": "2026-01-01", "seconds": 4.0}
    for folder, outcome in ((first, "passed"), (second, "failed")):
        folder.mkdir()
        values = {**entry, **FACTS, "outcome": outcome, "message": ""}
        (folder / NAME).write_text(f"{json.dumps(values)}\n", "utf-8")
    assert Ledger(second).outcome("k") == "failed"
    assert Ledger(second, first).outcome("k") == "passed"
    assert Ledger(second, first).seconds("s") == 4.0
    assert Ledger(second, first).outcome("another") is None


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
    assert main(["gpu"]) == 1
    assert "no CUDA device" in capsys.readouterr().err
    assert main(["gpu", "--plan"]) == 0
    assert "ends after " in capsys.readouterr().out
