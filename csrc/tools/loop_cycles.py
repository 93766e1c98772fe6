"""Predicts the cycles of the innermost loops of arm64 kernels, by the models of llvm-mca.

``python csrc/tools/loop_cycles.py OBJECT PATTERN [--objdump NAME] [--mca NAME] [--cpu NAME ...]``:
for each function of an object file whose name the pattern finds, the innermost loop with the most
multiply-adds, its instructions, and for each processor the cycles of an iteration and the
multiply-adds a cycle. The models know neither caches nor memory: these are bounds, not times.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter

# Multiply-adds of an instruction with 128 bits of sums.
MULTIPLY_ADDS = {
    **dict.fromkeys(("fmla", "mla", "mul"), 4),
    **dict.fromkeys(("smull", "smull2", "smlal", "smlal2", "bfdot"), 8),
    **dict.fromkeys(("sdot", "bfmmla"), 16),
    "usmmla": 32,
}
BRANCH = re.compile(r"(?:b\.?\w*|cbn?z|tbn?z)\s+(?:.*, )?([0-9a-f]+) <")

Instruction = tuple[int, str]  # its address and text


def main() -> None:
    """Print the loops of the functions that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("object")
    parser.add_argument("pattern")
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    parser.add_argument("--mca", default="llvm-mca", help="of LLVM 17 or later")
    parser.add_argument("--cpu", nargs="+", default=["neoverse-n1", "neoverse-v1", "neoverse-n2"])
    chosen = parser.parse_args()
    for name, instructions in functions(chosen.objdump, chosen.object):
        if not re.search(chosen.pattern, name):
            continue
        loop = max(innermost_loops(instructions), key=multiply_adds, default=[])
        if multiply_adds(loop) == 0:
            continue
        kinds = Counter(text.split()[0] for text in loop).most_common()
        print(name)
        print(f"  {len(loop)} instructions:", ", ".join(f"{n} {kind}" for kind, n in kinds))
        for cpu in chosen.cpu:
            cycles = predict(chosen.mca, cpu, loop)
            print(f"  {cpu}: {cycles:.1f} cycles, {multiply_adds(loop) / cycles:.1f} a cycle")


def functions(objdump: str, path: str) -> list[tuple[str, list[Instruction]]]:
    """List the functions of an object file by their demangled names."""
    command = [objdump, "-d", "-C", "--no-show-raw-insn", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = []
    for block in text.split("\n\n"):
        name = re.search(r"^[0-9a-f]+ <(.*)>:$", block, re.MULTILINE)
        if name:
            lines = re.findall(r"^\s+([0-9a-f]+):\t(.*?)(?:\s+//.*)?$", block, re.MULTILINE)
            found.append((name[1], [(int(at, 16), line) for at, line in lines]))
    return found


def innermost_loops(instructions: list[Instruction]) -> list[list[str]]:
    """List the bodies of loops that contain no other, with their branches back."""
    places = {at: i for i, (at, _) in enumerate(instructions)}
    spans = []
    for i, (_, text) in enumerate(instructions):
        branch = BRANCH.match(text)
        first = places.get(int(branch[1], 16)) if branch else None
        if first is not None and first <= i:
            spans.append((first, i))
    inner = [a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    return [[text for _, text in instructions[first : last + 1]] for first, last in inner]


def multiply_adds(loop: list[str]) -> int:
    """Count the multiply-adds of vectors in an iteration."""
    return sum(MULTIPLY_ADDS.get(text.split()[0], 0) for text in loop if "v" in text)


def predict(mca: str, cpu: str, loop: list[str]) -> float:
    """Return the cycles of an iteration, as a mean of 100."""
    code = "\n".join(["loop:", *(re.sub(r"\b[0-9a-f]+ <.*>", "loop", text) for text in loop)])
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+dotprod,+i8mm,+bf16"]
    run = subprocess.run(
        [*command, "-iterations=100"], input=code, check=True, capture_output=True, text=True
    )
    cycles = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    assert cycles is not None
    return int(cycles[1]) / 100


if __name__ == "__main__":
    main()
