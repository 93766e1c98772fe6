"""Damages files at random, and runs the cases of a search in processes of their own."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

RunCase = Callable[[str, Path], str]

CASES_A_PROCESS = 50
# After so long a case hangs, and its process is ended.
CASE_SECONDS = 300


def damage(content: bytes, chance: random.Random) -> bytes:
    """Change some bytes in one of the ways that copies, disks and attackers do."""
    kind = chance.choice(
        ["bit", "byte", "word", "cut", "append", "drop", "repeat", "zeros", "swap"]
    )
    where = chance.randrange(max(len(content), 1))
    size = chance.choice([1, 4, 8, 64])
    before, piece, after = content[:where], content[where : where + size], content[where + size :]
    if kind == "bit" and content:
        return before + bytes([content[where] ^ 1 << chance.randrange(8)]) + content[where + 1 :]
    if kind == "byte":
        return before + chance.randbytes(1) + content[where + 1 :]
    if kind == "word":
        # At a multiple of its size a number may be an offset or a length.
        where -= where % 4
        word = chance.choice([-1, 2**31 - 1, 0, chance.randrange(2**20)])
        return content[:where] + word.to_bytes(4, "little", signed=True) + content[where + 4 :]
    if kind == "cut":
        return before
    if kind == "append":
        return content + chance.choice([b"\0" * size, chance.randbytes(size), content[:size]])
    if kind == "drop":
        return before + after
    if kind == "repeat":
        return before + piece * 2 + after
    if kind == "zeros":
        return before + bytes(len(piece)) + after
    return before + after[:size] + piece + after[size:]


def _run_some(run_case: RunCase, names: list[str], results: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            results.send((name, None))
            signal.alarm(CASE_SECONDS)
            results.send((name, run_case(name, Path(folder))))


def run(run_case: RunCase, num_cases: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run cases in processes of their own; return what came of them, and the findings.

    ``run_case`` takes a case's name, from which it draws, and an empty folder. It returns "equal",
    "refused", or what is wrong. A process that dies is a finding too.
    """
    counts: Counter[str] = Counter()
    findings: list[str] = []
    context = multiprocessing.get_context("fork")
    names = [f"{seed} {case}" for case in range(num_cases)]
    while names:
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(
            target=_run_some, args=(run_case, names[:CASES_A_PROCESS], sending)
        )
        process.start()
        sending.close()
        begun: list[str] = []
        answered = 0
        while True:
            try:
                name, result = receiving.recv()
            except EOFError:
                break
            if result is None:
                begun.append(name)
                continue
            answered += 1
            counts[result if result in ("equal", "refused") else "wrong"] += 1
            if result not in ("equal", "refused"):
                findings.append(f"case {name!r}: {result}")
        process.join()
        if answered < len(begun):
            counts["crashed"] += 1
            findings.append(f"case {begun[-1]!r}: the process ended with {process.exitcode}")
        names = names[len(begun) :]
    return counts, findings


def main(run_case: RunCase, description: str | None) -> int:
    """Run the cases that the command line asks for, and print what came of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    counts, findings = run(run_case, arguments.cases, arguments.seed)
    print(*findings, sep="\n")
    print(dict(counts))
    return 1 if findings else 0
