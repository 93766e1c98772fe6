"""The package's source files and what each imports, read from the files themselves."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Import(NamedTuple):
    """One import statement: who, what, and where."""

    importer: str
    imported: str
    line: int


def module_name(path: Path, root: Path = ROOT) -> str:
    """Name a file as Python imports it; kernels/ is encoder_engine.kernels."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts[0] == "kernels":
        parts.insert(0, "encoder_engine")
    return ".".join(parts)


def sources(*folders: str) -> list[Path]:
    """List the Python files below the folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path, root: Path = ROOT) -> list[Import]:
    """List every import of a file, wherever it stands, relative ones resolved."""
    importer = module_name(path, root)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(importer, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            found += [Import(importer, f"{base}.{alias.name}", node.lineno) for alias in node.names]
    return found
