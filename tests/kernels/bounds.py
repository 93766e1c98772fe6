"""Bounds every kernel's speed on Hopper from its disassembly, and keeps the table of them.

``python -m tests.kernels.bounds`` compares the kernels of tests/kernels/ahead_of_time.py with the
committed table; ``--write --because REASON`` renews it and keeps the reason beside the figures.
tests/kernels/sass.py says what is counted and how far a bound can be trusted. No GPU is needed, and
nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tests import ROOT
from tests.kernels import sass
from tests.kernels.ahead_of_time import COMPILING, build, compile_variant, variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kernels.variant import Variant

TABLE = ROOT / "tests/golden/kernel_bounds.json"
TARGET = 90
# A bound that is lower by less has moved with the last digit.
SLACK = 0.99
Row = dict[str, float]


def bound(variant: Variant) -> Row:
    """Compile a kernel for Hopper and count its inner loop."""
    used = compile_variant(variant, TARGET)
    figures = sass.count(sass.disassemble(build(variant, TARGET).asm["cubin"]))
    row: Row = {
        "instructions": figures.instructions,
        "wgmma": figures.wgmma,
        "mma_sync": figures.mma_sync,
        "exp2": figures.exp2,
        "barriers": figures.barriers,
        "registers": used["registers"],
        "spilled_bytes": used["spilled_bytes"],
        "shared_bytes": used["shared_bytes"],
        "residents": sass.residents(
            registers=used["registers"], shared=used["shared_bytes"], num_warps=variant.num_warps
        ),
    }
    if figures.wgmma or figures.mma_sync:
        row["serial"] = round(figures.serial(variant.num_warps), 3)
        row["overlapped"] = round(figures.overlapped(variant.num_warps), 3)
    return row


def complaints(found: Mapping[str, Row], committed: Mapping[str, Row]) -> list[str]:
    """Say which kernels became slower by their bounds, or have no row."""
    wrong = [f"{name}: it has no row" for name in found.keys() - committed.keys()]
    wrong += [f"{name}: its kernel is gone" for name in committed.keys() - found.keys()]
    for name in found.keys() & committed.keys():
        new, old = found[name], committed[name]
        wrong += [
            f"{name}: {new[what]:g} {what}, it was {old[what]:g}"
            for what in ("instructions", "mma_sync", "spilled_bytes")
            if new[what] > old[what]
        ]
        wrong += [
            f"{name}: {what} {new.get(what, 0):g}, it was {old[what]:g}"
            for what in ("residents", "serial", "overlapped")
            if what in old and new.get(what, 0.0) < SLACK * old[what]
        ]
    return sorted(wrong)


def read() -> dict[str, Any]:
    """Read the committed table: Triton's version, the reason of its last change, the kernels."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def main() -> int:
    """Compare or renew; return 1 where a kernel became slower by its bounds."""
    os.environ.update(COMPILING)
    import triton

    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.kernels.bounds")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--because", metavar="REASON")
    given = parser.parse_args()
    if given.write and not given.because:
        parser.error("--write needs --because REASON: why instructions or bounds changed")
    found = {variant.name: bound(variant) for variant in variants(TARGET)}
    wrong = complaints(found, read()["kernels"]) if TABLE.is_file() else []
    if given.write:
        lines = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()
        )
        head = (
            f'"triton": {json.dumps(triton.__version__)},\n "because": {json.dumps(given.because)}'
        )
        TABLE.write_text(f'{{\n {head},\n "kernels": {{\n{lines}\n }}\n}}\n', encoding="utf-8")
    elif triton.__version__ != read()["triton"]:
        sys.stdout.write(f"the table is of Triton {read()['triton']}\n")
        return 0
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return int(bool(wrong) and not given.write)


if __name__ == "__main__":
    sys.exit(main())
