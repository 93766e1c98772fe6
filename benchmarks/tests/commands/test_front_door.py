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
from benchmarks.records.front_doors import FrontDoor, read_front_doors, write_front_door
from benchmarks.report.aims import hold
from benchmarks.targets import quantities as by
from benchmarks.targets.target import Target

if TYPE_CHECKING:
    from pathlib import Path

VISIT = FrontDoor(
    device="a-machine",
    time_utc="2026-11-22T10:00:00+00:00",
    commit="abc",
    run_seconds=90.0,
    test_seconds=840.0,
    installed_mb={"numpy": 70.0, "small": 2.5},
)


def aim(most: float, front_door: object) -> Target:
    """Make a target that a visit answers."""
    return Target(group="g", what="w", wanted="x", at_most=most, front_door=front_door)  # type: ignore[arg-type]


def test_a_visit_is_held_against_its_targets() -> None:
    (run,) = hold(aim(3, by.minutes_to_run), [], (), [VISIT])
    (test,) = hold(aim(12, by.minutes_to_test), [], (), [VISIT])
    (size,) = hold(aim(60, by.installed_mb), [], (), [VISIT])
    assert [one.state for one in (run, test, size)] == ["met", "missed", "missed"]
    assert run.reached is not None
    assert run.reached.words == "1.5 minutes"
    assert size.reached is not None
    assert size.reached.words == "72.5 MB, numpy 70"
    assert run.where is not None
    assert (run.where.device, run.where.day) == ("a-machine", "2026-11-22")
    assert hold(aim(3, by.minutes_to_run), [])[0].state == "not measured"


def test_the_newest_visit_of_a_device_is_kept(tmp_path: Path) -> None:
    other = replace(VISIT, device="b-machine")
    for one in (VISIT, other, replace(VISIT, run_seconds=1.0)):
        write_front_door(one, tmp_path)
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
