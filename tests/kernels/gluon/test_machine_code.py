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
# What compiles in seconds, of each head size and direction.
FEW = ("forward d64 128 rows", "forward d128 128 rows, turns", "backward d64 512 tokens")
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
    kernel = machine_code.kernels()[name]
    events = row["order"].split()
    counted = [event if event[0] == "W" else event[0] for event in events if event[0] not in "BP"]
    assert " ".join(counted) == kernel.design, (name, row["order"])
    for place, event in enumerate(events):
        # The branch over which ptxas moves no exponential.
        if event[0] == "E" and kernel.module == "forward":
            assert "P" in events[place + 1 : events.index("W0")], (name, row["order"])
    assert row["spilled_bytes"] == 0, name
    assert row["shared_bytes"] <= SHARED_BYTES, name
    assert row["overwritten_operands"] == row["hasty_arrivals"] == 0, name
    # Behind the last part lie loops of all parts.
    assert all(used <= given for given, used in row["registers_of_parts"][:-1]), name


@pytest.mark.parametrize(("version", "name"), ROWS)
def test_the_table_is_of_kernels_as_designed(version: str, name: str) -> None:
    hold_to_design(name, read()[version][name])


def test_the_table_has_every_kernel() -> None:
    for rows in read().values():
        assert rows.keys() == machine_code.kernels().keys()


def test_the_installed_triton_compiles_some_as_designed() -> None:
    hold(*compiled(None, FEW))


def test_the_table_of_attentions_readme_is_that_of_the_pinned_triton() -> None:
    (pinned,) = re.findall(r"^triton==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    rows, kernels = read()[pinned], machine_code.kernels()
    text = (ROOT / "kernels/attention/README.md").read_text("utf-8")
    lines = re.findall(r"^\| Gluon (.+?) \| (\d+ x .+) \|$", text, re.MULTILINE)
    assert [name for name, _ in lines] == list(kernels)
    for name, figures in lines:
        row, kernel = rows[name], kernels[name]
        keys = kernel.blocks["key_rows"] // (2 if kernel.module == "backward" else 1)
        expected = (
            f"64 x {keys}, {kernel.num_consumers} | {row['instructions']} | "
            f"{row['overlapped']:.0%} | {row['shared_bytes']:,}, {kernel.num_programs}"
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


def test_an_arrival_before_all_warps_have_done_their_part_is_found() -> None:
    arrival, barrier = (
        "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ",
        "BAR.SYNC.DEFER_BLOCKING 0x2, 0x80",
    )
    for done in ("WARPGROUP.DEPBAR.LE gsb0, 0x0", "STS.128 [R3], R4", "LDS.128 R4, [R3]"):
        assert machine_code.hasty_arrivals([barrier, done, "MOV R1, R2", arrival])
        assert not machine_code.hasty_arrivals([done, barrier, "MOV R1, R2", arrival])


def test_other_versions_lie_in_the_folder_of_the_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ENCODER_ENGINE_PEERS", str(tmp_path))
    assert folder_of("3.6.0").parent == tmp_path
