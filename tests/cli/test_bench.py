"""``encoder-engine bench``: the suite of the checkout, wherever the user stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from encoder_engine.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_arguments_and_exit_codes_are_those_of_the_suite(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder of that name where the user stands is not the suite.
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise SystemExit(9)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "run", "layer_norm", "--list"]) == 0
    assert "layer_norm/forward" in capfd.readouterr().out
    assert main(["bench", "run", "no_such_case"]) == 2
    assert "no case 'no_such_case' on cpu" in capfd.readouterr().err
    assert main(["bench", "--help"]) == 0
    assert "compare" in capfd.readouterr().out


def test_without_a_checkout_it_says_where_the_suite_is(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The verb of that name hides the module.
    monkeypatch.setattr(sys.modules["encoder_engine.cli.bench"], "ROOT", tmp_path)
    assert main(["bench"]) == 1
    assert "run this in a checkout, set up by `make bench`" in capfd.readouterr().err
    assert main(["bench", "--help"]) == 0
    told = capfd.readouterr().out
    assert "Usage: encoder-engine bench" in told
    assert "it needs a checkout" in told
