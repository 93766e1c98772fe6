"""Timing README's two commands records complete runs, and nothing of a failed one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from benchmarks.commands import front_door as door
from benchmarks.records import results as records
from benchmarks.records.device_records import read_front_doors, write_front_door
from benchmarks.tests.targets.test_targets import VISIT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_newest_visit_of_a_device_is_kept(tmp_path: Path) -> None:
    other = replace(VISIT, device="b-machine")
    for visit in (VISIT, other, replace(VISIT, run_seconds=1.0)):
        write_front_door(visit, tmp_path)
    assert list(read_front_doors(tmp_path)) == [replace(VISIT, run_seconds=1.0), other]


def test_what_is_left_out_takes_along_what_only_it_asks_for() -> None:
    whole = door.installed_sizes(sys.executable, beyond=())
    without = door.installed_sizes(sys.executable, beyond=("torch", "triton"))
    assert whole["torch"] > 50
    assert {"torch", "sympy", "networkx"}.isdisjoint(without)
    assert without["numpy"] == whole["numpy"] > 10
    assert "pip" not in whole


class Visit:
    """Stands in for the commands: notes them, and may fail at one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.ran: list[list[str]] = []
        self.failing = ["nothing"]
        monkeypatch.setattr(door, "timed", self.run)
        monkeypatch.setattr(door, "git_head", lambda _clone: "c0ffee")
        monkeypatch.setattr(door, "installed_sizes", lambda _python, **_: {"numpy": 70.0})
        monkeypatch.setattr(records, "FOLDER", folder)

    def run(self, command: list[str], _folder: Path) -> float:
        self.ran.append(command)
        if command[: len(self.failing)] == self.failing:
            raise click.ClickException("it failed")
        return float(len(self.ran))


def test_what_the_commands_take_is_recorded_with_the_clones_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    visit = Visit(monkeypatch, tmp_path)
    CliRunner().invoke(door.front_door, catch_exceptions=False)
    environments = [command[-1] for command in visit.ran[1:3]]
    assert [command[:2] for command in visit.ran[1:3]] == [["make", "run"], ["make", "test"]]
    assert len(set(environments)) == 2
    (found,) = read_front_doors(tmp_path)
    assert (found.commit, found.run_seconds, found.test_seconds) == ("c0ffee", 2.0, 3.0)
    assert found.installed_mb == {"numpy": 70.0}


def test_of_a_command_that_fails_nothing_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    visit = Visit(monkeypatch, tmp_path)
    visit.failing = ["make", "test"]
    ran = CliRunner().invoke(door.front_door)
    assert ran.exit_code != 0
    assert "it failed" in ran.output
    assert not list(tmp_path.iterdir())


def test_a_command_runs_without_what_pip_kept_and_without_our_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PYTHONPATH", "OMP_NUM_THREADS", "ENCODER_ENGINE_ISA"):
        monkeypatch.setenv(name, "2")
    code = """if True:
        import os
        found = {"PYTHONPATH", "OMP_NUM_THREADS", "ENCODER_ENGINE_ISA"} & set(os.environ)
        assert not found, found
        assert os.environ["PIP_NO_CACHE_DIR"] == "1"
    """
    assert door.timed([sys.executable, "-c", code], tmp_path) > 0
    with pytest.raises(click.ClickException, match="ended with code 3"):
        door.timed([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
