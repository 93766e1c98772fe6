"""A family of models is data: no class, no function, no branch, and registered by being there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from encoder_engine.families import data, registry
from encoder_engine.families.registry import WRITTEN_AS
from encoder_engine.models import all_families
from tests.architecture.sources import module_name, sources

if TYPE_CHECKING:
    from pathlib import Path

FILES = [path for path in sources("encoder_engine/families/data") if path.stem != "__init__"]
ALLOWED = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_family_file_holds_data_only(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for statement in tree.body[1:]:
        assert isinstance(statement, ALLOWED), f"line {statement.lineno} is not data"
    assert not any(isinstance(node, (ast.IfExp, ast.Lambda)) for node in ast.walk(tree))


def test_every_file_is_a_registered_family() -> None:
    assert len(all_families()) == len(FILES)
    assert {path.stem for path in FILES} == {name.replace("-", "_") for name in all_families()}


def test_files_that_are_no_modules_are_no_families(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as macOS and Emacs write beside others; compiled files and archives hold modules."""
    folder, archive = tmp_path / "folder", tmp_path / "archive.zip"
    folder.mkdir()
    for name in ("._bert.py", ".#bert.py", "__init__.py", "notes.txt", "gte.pyc", "bert.py"):
        (folder / name).touch()
    with ZipFile(archive, "w") as file:
        file.writestr("bert.py", "")
    read = registry._modules.__wrapped__
    monkeypatch.setattr(data, "__path__", [str(folder), str(tmp_path / "absent")])
    assert read() == {"bert", "gte"}
    monkeypatch.setattr(data, "__path__", [str(archive)])
    assert read() == {"bert"}


def test_families_that_are_written_as_another_are_listed_there() -> None:
    found: dict[str, list[str]] = {}
    for name, family in all_families().items():
        if family.written_as is not None:
            found.setdefault(family.written_as, []).append(name.replace("-", "_"))
    assert {name: tuple(modules) for name, modules in found.items()} == WRITTEN_AS


def test_no_family_is_named_outside_the_families() -> None:
    names = set(all_families())
    for path in sources("encoder_engine/models", "encoder_engine/ops", "kernels"):
        if "families" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                pytest.fail(f"{module_name(path)} line {node.lineno} names {node.value}")
