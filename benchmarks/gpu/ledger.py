"""The ledger of the steps that ran on a GPU: ``gpu.ledger``, JSON lines, one as a step ends.

A step is known by what it runs: its command, the sources that it measures, the versions of torch,
Triton and transformers, and the GPU. Whoever changes a kernel has its steps run again, and no
others; a comment or a new line changes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.machine import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NAME = "gpu.ledger"


class Ledger:
    """The entries of some folders, of which the first is written to.

    An entry has at least key, step, time_utc, seconds and outcome, which is "passed", "failed" or
    "stopped" (at its limit).
    """

    def __init__(self, folder: Path, *others: Path) -> None:
        self._path = folder / NAME
        files = [path for one in (*others, folder) if (path := one / NAME).is_file()]
        self._known: list[dict[str, Any]] = [
            json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()
        ]

    def outcome(self, key: str) -> str | None:
        """Return how a step ended last; "passed" where it ever did, None where it never ran."""
        found = [str(entry["outcome"]) for entry in self._known if entry["key"] == key]
        return "passed" if "passed" in found else found[-1] if found else None

    def seconds(self, step: str) -> float | None:
        """Return how long a step took when it last passed, whatever it measured."""
        passed = [e for e in self._known if e["step"] == step and e["outcome"] == "passed"]
        return float(max(passed, key=lambda e: str(e["time_utc"]))["seconds"]) if passed else None

    def add(self, **entry: Any) -> None:
        """Add an entry to the file at once."""
        self._known.append(entry)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(entry)}\n")


def make_key(command: Sequence[str], sources: Iterable[str], facts: Sequence[str]) -> str:
    """Hash a step's command, the content of its files and folders, and the facts of a machine."""
    digest = hashlib.sha256(repr((list(command), list(facts))).encode())
    for source in sorted(sources):
        path = ROOT / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(path.parent).as_posix().encode())
            digest.update(_tree(file.read_bytes()))
    return digest.hexdigest()[:16]


@cache
def _tree(source: bytes) -> bytes:
    """Return a digest of a file's syntax, which takes 5 ms; steps share most of their files."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).digest()
