"""The measurement of the server's own CPU runs, and states both servers in both forms."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.commands.serving_cost import serving_cost


@pytest.mark.exhaustive
def test_a_short_run_states_both_servers_in_both_forms() -> None:
    ran = CliRunner().invoke(serving_cost, ["--rounds", "1", "--requests", "64"])
    assert ran.exit_code == 0, ran.output
    rows = [json.loads(line) for line in ran.output.splitlines()]
    names = {(row["server"], row["form"]) for row in rows}
    assert names == {(name, form) for name in ("ours", "bare") for form in ("float", "base64")}
    assert all(row["median_us"] > 0 for row in rows)
