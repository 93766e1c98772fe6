"""Counts the instructions of a kernel's inner loop, and bounds its speed, from its disassembly.

How it works: the innermost loop with matrix products is where a compute-bound kernel spends its
time; without products it is the longest loop, or the whole kernel. Each instruction holds a pipe
for some cycles. Throughput per clock and multiprocessor as of the CUDA C++ Programming Guide, table
"Throughput of Native Arithmetic Instructions", compute capability 9.0: 128 float32, 64 int32
multiply-adds, 64 logic and compare, 16 special functions, 4 instructions issued. ``wgmma`` 64xNx16
takes N / 2 cycles (arXiv 2402.13499).

Two bounds, as a share of the tensor cores' peak. Serial: products, everything else and 60 cycles a
barrier, one after the other. Overlapped: the longest of the pipes alone. Published plain Triton
kernels reach 0.75 to 0.9 of the serial bound: 401 of 989 TFLOP/s for heads of 64 in
FlashAttention-3's charts, where it says 45 %. Not seen: latency, the level-2 cache, clocks, the
instruction cache. What a branch of the loop skips is counted as if it always ran, such as the
epilogue of a flattened loop. The order of two variants of one kernel is what it is for.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);")
_LABEL = re.compile(r"^(\.L_\w+):")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_WGMMA = re.compile(r"^HGMMA\.64x(\d+)x16")
# Pipes, and the cycles that an instruction of one warp holds a quarter of the multiprocessor's.
_PIPES = (
    ("special", 8, re.compile(r"^(MUFU|I2F|F2I)")),
    ("int multiply", 2, re.compile(r"^IMAD")),
    ("float32", 1, re.compile(r"^(FFMA|FADD|FMUL)")),
    (
        "logic",
        2,
        re.compile(
            r"^(FMNMX|FSETP|FSEL|FSET|LOP3|SHF|PRMT|IADD3|LEA|ISETP|SEL|IMNMX|VIMNMX|PLOP3|F2FP"
            r"|VIADD|SGXT|VOTE|I2FP)"
        ),
    ),
)
BARRIER_CYCLES = 60
# 16x8x16 by the instructions of GPUs before Hopper, which reach 62 % of its tensor cores' peak.
LEGACY_CYCLES, LEGACY_SHARE = 4, 0.62
# ptxas waits after each product (its warning C7515): so much longer.
SERIALISED_FACTOR = 2.2
REGISTERS, SHARED_BYTES, MAX_WARPS, RESERVED_BYTES = 65536, 233472, 64, 1024
# A load of two bytes or one: kernels bound by memory read 16 at a time.
_NARROW = re.compile(r"^LDG\S*\.[US](8|16)\b")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the inner loop holds, per warp, and what the kernel takes.

    ``tensor_cycles``: of the multiprocessor, for one warpgroup's products. ``groups``: products
    that are committed at once. ``whole``: there is no loop, so the whole kernel is counted.
    """

    instructions: int
    wgmma: int
    mma_sync: int
    exp2: int
    barriers: int
    narrow_loads: int
    groups: int
    tensor_cycles: float
    pipe_cycles: float
    whole: bool

    @property
    def serialised(self) -> bool:
        """Whether ptxas waits after each wgmma: it says so by warning C7515."""
        return self.wgmma > 4 and self.groups > 0.6 * self.wgmma

    def serial(self, num_warps: int) -> float:
        """Return the bound where nothing overlaps, as a share of the tensor cores' peak."""
        scale = num_warps / 4
        busy = self._taken(scale) + self.pipe_cycles * scale + BARRIER_CYCLES * self.barriers
        return self._ideal(scale) / busy if busy else 0.0

    def overlapped(self, num_warps: int) -> float:
        """Return the bound where everything overlaps, as a share of the tensor cores' peak."""
        scale = num_warps / 4
        busy = max(self._taken(scale), self.pipe_cycles * scale)
        return self._ideal(scale) / busy if busy else 0.0

    def _ideal(self, scale: float) -> float:
        return (self.tensor_cycles + LEGACY_CYCLES * self.mma_sync) * scale

    def _taken(self, scale: float) -> float:
        products = self.tensor_cycles * (SERIALISED_FACTOR if self.serialised else 1.0)
        return (products + LEGACY_CYCLES / LEGACY_SHARE * self.mma_sync) * scale


def residents(*, registers: int, shared: int, num_warps: int) -> int:
    """Return how many programs fit a Hopper multiprocessor at once."""
    rounded = -(-max(registers, 24) // 8) * 8
    return min(
        REGISTERS // (rounded * 32 * num_warps),
        SHARED_BYTES // (shared + RESERVED_BYTES),
        MAX_WARPS // num_warps,
    )


def disassemble(cubin: bytes) -> str:
    """Disassemble by the nvdisasm that comes with Triton."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        ran = subprocess.run(
            [str(tool), "-c", file.name], capture_output=True, text=True, check=True
        )
    return ran.stdout


def count(sass: str) -> Figures:
    """Count a kernel's inner loop; narrow loads are those of the whole kernel."""
    instructions, loops = parse(sass)
    body = inner_loop(sass)
    counts: Counter[str] = Counter()
    cycles: Counter[str] = Counter(issue=len(body))
    tensor = 0.0
    for text in body:
        product = _WGMMA.match(text)
        if product is not None:
            tensor += int(product[1]) / 2
            counts["wgmma"] += 1
            counts["groups"] += "gsb0" in text
        counts["mma_sync"] += text.startswith("HMMA")
        counts["exp2"] += text.startswith("MUFU.EX2")
        counts["barriers"] += text.startswith("BAR")
        for pipe, held, pattern in _PIPES:
            if pattern.match(text):
                cycles[pipe] += held
                break
    return Figures(
        instructions=len(body),
        wgmma=counts["wgmma"],
        mma_sync=counts["mma_sync"],
        exp2=counts["exp2"],
        barriers=counts["barriers"],
        narrow_loads=sum(_NARROW.match(text) is not None for text in instructions),
        groups=counts["groups"],
        tensor_cycles=tensor,
        pipe_cycles=float(max(cycles.values())),
        whole=not loops,
    )


def inner_loop(sass: str) -> list[str]:
    """Return the instructions of the loop where a kernel spends its time."""
    instructions, loops = parse(sass)
    first, last = _hot(instructions, loops)
    return instructions[first : last + 1]


def parse(sass: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the instructions without their predicates, and the loops as (first, last)."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in sass.splitlines():
        label = _LABEL.match(line.strip())
        if label is not None:
            labels[label[1]] = len(instructions)
            continue
        found = _LINE.match(line)
        if found is None:
            continue
        text = _PREDICATE.sub("", found[1].strip())
        target = _TARGET.search(text) if text.startswith("BRA") else None
        # A branch to itself pads the end of a kernel.
        begin = len(instructions) if target is None else labels.get(target[1], len(instructions))
        if begin < len(instructions):
            loops.append((begin, len(instructions)))
        instructions.append(text)
    return instructions, loops


def _hot(instructions: list[str], loops: list[tuple[int, int]]) -> tuple[int, int]:
    """Choose the first innermost loop with products, or without any the longest innermost one."""

    def multiplies(loop: tuple[int, int]) -> bool:
        body = instructions[loop[0] : loop[1] + 1]
        return any(text.startswith(("HGMMA", "HMMA")) for text in body)

    multiplying = [loop for loop in loops if multiplies(loop)]
    chosen = multiplying or loops
    inner = [
        loop
        for loop in chosen
        if not any(x != loop and loop[0] <= x[0] and x[1] <= loop[1] for x in chosen)
    ]
    if not inner:
        return 0, len(instructions) - 1
    # Of two loops that multiply, the first takes whole blocks and the second the ragged end.
    return min(inner) if multiplying else max(inner, key=lambda loop: loop[1] - loop[0])
