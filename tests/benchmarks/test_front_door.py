"""README's two commands, timed: what is recorded, and what is not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from benchmarks import front_door as door
from benchmarks import quantities as by
from benchmarks import results as records
from benchmarks.report.aims import hold
from benchmarks.target import Target

if TYPE_CHECKING:
    from pathlib import Path

VISIT = door.FrontDoor(
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
        door.write_front_door(one, tmp_path)
    assert list(door.read_front_doors(tmp_path)) == [replace(VISIT, run_seconds=1.0), other]


def test_what_is_left_out_takes_along_what_only_it_asks_for() -> None:
    whole = door.installed_sizes(sys.executable, beyond=())
    without = door.installed_sizes(sys.executable, beyond=("torch", "triton"))
    assert whole["torch"] > 50
    assert {"torch", "sympy", "networkx"}.isdisjoint(without)
    assert without["numpy"] == whole["numpy"] > 10
    assert "pip" not in whole


def test_of_a_command_that_fails_nothing_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []

    def timed(command: list[str], folder: Path) -> float:
        ran.append(command)
        if command[:2] == ["make", "test"]:
            raise subprocess.CalledProcessError(2, command)
        return 1.0

    monkeypatch.setattr(door, "timed", timed)
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    assert CliRunner().invoke(door.front_door).exit_code != 0
    assert [command[:2] for command in ran[1:]] == [["make", "run"], ["make", "test"]]
    assert not list(tmp_path.iterdir())


def test_a_command_runs_without_what_pip_kept_and_without_our_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    code = """if True:
        import os
        assert "PYTHONPATH" not in os.environ
        assert os.environ["PIP_NO_CACHE_DIR"] == "1"
    """
    assert door.timed([sys.executable, "-c", code], tmp_path) > 0
    with pytest.raises(subprocess.CalledProcessError):
        door.timed([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
