"""The machine code of attention in Gluon has the order it was designed for, by each Triton."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.kernels.gluon import machine_code
from tests.kernels.gluon.machine import SHARED_BYTES
from tests.kernels.gluon.machine_code import OTHER_VERSIONS, SETUP, folder_of, read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernels.gluon.machine_code import Row

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
# The score's products, those of P V, a wait for the first, exponentials, and the wait for the
# second. With turns, the other consumer's begins once both were asked for.
DESIGN = {False: "H H W1 A E W0 A", True: "H H A W1 A E W0 A"}
# Of each head size, what compiles in seconds.
FEW = ("forward d64 128 rows", "forward d128 128 rows, turns")
ROWS = [(version, name) for version, rows in read().items() for name in rows]


def compiled(version: str | None, names: tuple[str, ...] = ()) -> tuple[str, dict[str, Row]]:
    """Compile in a process of its own: in this one, Triton may be interpreting."""
    python_path = [] if version is None else [str(folder_of(version))]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.gluon.machine_code", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(python_path)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    ((by, rows),) = json.loads(ran.stdout).items()
    return by, rows


def hold(version: str, rows: dict[str, Row]) -> None:
    """Hold kernels to the table; fewer instructions are no complaint."""
    committed = read().get(version)
    if committed is None:
        pytest.skip(f"the table has no rows of Triton {version}: renew it with --write")
    for name, row in rows.items():
        assert row["order"] == committed[name]["order"], name
        assert row["instructions"] <= committed[name]["instructions"], name
        hold_to_design(name, row)


def hold_to_design(name: str, row: Row) -> None:
    """Hold a kernel to what must be, whatever the table says."""
    events = row["order"].split()
    counted = [event if event[0] == "W" else event[0] for event in events if event[0] not in "BP"]
    assert " ".join(counted) == DESIGN["turns" in name], (name, row["order"])
    for place, event in enumerate(events):
        # A warp waits for its own products: all four have when one of them says so.
        if event[0] == "W":
            assert events[place + 1 : place + 3] == ["B", "A"], (name, row["order"])
        # The branch over which ptxas moves no exponential.
        if event[0] == "E":
            assert "P" in events[place + 1 : events.index("W0")], (name, row["order"])
    assert row["spilled_bytes"] == 0, name
    assert row["shared_bytes"] <= SHARED_BYTES, name
    assert row["overwritten_operands"] == 0, name
    # Behind the last part lie loops of all parts.
    assert all(used <= given for given, used in row["registers_of_parts"][:-1]), name


@pytest.mark.parametrize(("version", "name"), ROWS)
def test_the_table_is_of_kernels_as_designed(version: str, name: str) -> None:
    hold_to_design(name, read()[version][name])


def test_the_table_has_every_kernel() -> None:
    for rows in read().values():
        assert rows.keys() == machine_code.launches().keys()


def test_the_installed_triton_compiles_some_as_designed() -> None:
    hold(*compiled(None, FEW))


def test_the_table_of_attentions_readme_is_that_of_the_pinned_triton() -> None:
    (pinned,) = re.findall(r"^triton==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    rows, kernels = read()[pinned], machine_code.launches()
    text = (ROOT / "kernels/attention/README.md").read_text("utf-8")
    lines = re.findall(r"^\| Gluon (.+? rows(?:, turns)?) \| (.+) \|$", text, re.MULTILINE)
    assert [f"forward {name}" for name, _ in lines] == list(kernels)
    for name, figures in lines:
        row, (_, launch) = rows[f"forward {name}"], kernels[f"forward {name}"]
        expected = (
            f"64 x {launch.block_keys}, {launch.num_consumers} | {row['instructions']} | "
            f"{row['overlapped']:.0%} | {row['shared_bytes']:,}, {launch.num_programs}"
        )
        assert figures == expected.replace("%", " %"), name


@pytest.mark.exhaustive
def test_the_installed_triton_compiles_all_as_designed() -> None:
    hold(*compiled(None))


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_another_triton_compiles_all_as_designed(version: str) -> None:
    if not folder_of(version).is_dir():
        pytest.skip(f"Triton {version} is not set up; {SETUP}")
    by, rows = compiled(version)
    assert by == version
    hold(by, rows)


def test_what_overwrites_a_register_that_a_product_reads_is_found() -> None:
    product = "HGMMA.64x64x16.F32.BF16 R88, R120, gdesc[UR16].tnspB, R88, gsb0"
    wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
    for written, wrong in (
        ("F2FP.BF16.F32.PACK_AB R121, R3, R2", True),
        ("LDS.128 R120, [R8]", True),
        ("IMAD.WIDE R122, R2, R3, R4", True),
        ("FADD R2, R121, R122", False),
        ("STS.128 [R121], R4", False),
        ("FADD R124, R2, R3", False),
    ):
        found = machine_code.overwritten_operands([product, written, wait])
        assert bool(found) == wrong, written
        assert not machine_code.overwritten_operands([product, wait, written])


def test_other_versions_lie_in_the_folder_of_the_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENCODER_ENGINE_PEERS", str(tmp_path))
    assert folder_of("3.6.0").parent == tmp_path
