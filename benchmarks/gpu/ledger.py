"""The ledger of the steps that ran on a GPU: ``gpu.ledger``, a JSON line for each step that ended.

A step's key is a hash of what it runs: its command, the sources that it measures, the versions of
torch, Triton and transformers, and the GPU. After a change of a kernel its steps run again, and no
others; a changed comment, docstring or line break has none run again.
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
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Ledger:
    """The GPU steps recorded in the ledger files of several folders.

    New entries go to the file of ``folder``; those of ``others`` are only read. An entry has at
    least key, step, time_utc, seconds and outcome: "passed", "failed" or "stopped" (at its limit).
    """

    def __init__(self, folder: Path, *others: Path) -> None:
        self._path = folder / NAME
        files = [path for one in (*others, folder) if (path := one / NAME).is_file()]
        self._known: list[dict[str, Any]] = [
            json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()
        ]

    def outcome(self, key: str) -> str | None:
        """Return "passed" if the step with this key ever passed, else its last outcome.

        None: it never ran.
        """
        found = [str(entry["outcome"]) for entry in self._known if entry["key"] == key]
        return "passed" if "passed" in found else found[-1] if found else None

    def seconds(self, step: str) -> float | None:
        """Return the duration of a step when it last passed, with any key; None: it never did."""
        passed = [e for e in self._known if e["step"] == step and e["outcome"] == "passed"]
        return float(max(passed, key=lambda e: str(e["time_utc"]))["seconds"]) if passed else None

    def add(self, **entry: Any) -> None:
        """Write an entry to the ledger file of the first folder at once."""
        self._known.append(entry)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(entry)}\n")


def make_key(command: Sequence[str], sources: Iterable[str], facts: Sequence[str]) -> str:
    """Hash a step's command, the syntax of its source files, and the facts of a machine.

    ``sources``: files and folders.
    ``facts``: such as versions and the GPU's name.
    """
    digest = hashlib.sha256(repr((list(command), list(facts))).encode())
    for source in sorted(sources):
        path = ROOT / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(path.parent).as_posix().encode())
            digest.update(_tree(file.read_bytes()))
    return digest.hexdigest()[:16]


@cache
def _tree(source: bytes) -> bytes:
    """Return a digest of a source file's syntax tree without its docstrings.

    It takes 5 ms, and steps share files.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).digest()
