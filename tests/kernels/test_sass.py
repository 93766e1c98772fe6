"""The static model counts a made-up disassembly as by hand, and its bounds move as they should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernels import sass


def kernel(*lines: str) -> str:
    """Write lines as nvdisasm does: labels as they are, instructions with an address."""
    written = []
    for number, line in enumerate(lines):
        written.append(line if line.endswith(":") else f"        /*{16 * number:04x}*/  {line} ;")
    return "\n".join(written)


ATTENTION = kernel(
    "MOV R1, c[0x0][0x28]",
    ".L_x_1:",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], !UPT",
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0",
    "@!P0 MUFU.EX2 R3, R4",
    "FFMA R3, R4, R5, R6",
    "BAR.SYNC 0x0",
    "@P0 BRA `(.L_x_1)",
    ".L_x_2:",
    "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], !UPT",
    "@P1 BRA `(.L_x_2)",
    "LDG.E.U16 R2, desc[UR4][R2.64]",
    "EXIT",
    ".L_x_3:",
    "BRA `(.L_x_3)",
)


def test_the_first_loop_that_multiplies_is_counted() -> None:
    found = sass.count(ATTENTION)
    assert (found.instructions, found.wgmma, found.mma_sync) == (6, 2, 0)
    assert (found.exp2, found.barriers, found.narrow_loads) == (1, 1, 1)
    assert (found.groups, found.tensor_cycles, found.pipe_cycles) == (1, 128.0, 8.0)
    assert not found.whole
    assert not found.serialised


def test_the_innermost_of_nested_loops_is_counted() -> None:
    nested = kernel(".L_x_1:", ".L_x_2:", "HMMA.16816 R4", "BRA `(.L_x_2)", "BRA `(.L_x_1)")
    assert sass.count(nested).instructions == 2


def test_a_kernel_without_a_loop_is_counted_whole() -> None:
    found = sass.count(kernel("LDG.E.128 R4, [R2]", "FADD R4, R4, R5", "EXIT"))
    assert found.whole
    assert (found.instructions, found.narrow_loads) == (3, 0)


def test_bounds_are_products_by_what_they_wait_for() -> None:
    found = sass.count(ATTENTION)
    # 8 warps: 256 cycles of products, 16 of exponentials, a barrier of 60.
    assert found.serial(8) == pytest.approx(256 / (256 + 16 + 60))
    assert found.overlapped(8) == 1.0


def test_serialised_and_older_products_lower_the_bounds() -> None:
    plain = replace(sass.count(ATTENTION), wgmma=8, groups=2)
    serialised = replace(plain, groups=8)
    assert serialised.serialised
    assert not plain.serialised
    assert serialised.serial(8) < plain.serial(8)
    older = replace(plain, wgmma=0, tensor_cycles=0.0, mma_sync=32)
    assert older.overlapped(4) == pytest.approx(0.62)


def test_programs_share_a_multiprocessor_as_registers_and_memory_allow() -> None:
    assert sass.residents(registers=128, shared=0, num_warps=8) == 2
    assert sass.residents(registers=129, shared=0, num_warps=8) == 1
    assert sass.residents(registers=32, shared=100_000, num_warps=4) == 2
