"""What is generated or written twice: the Unicode tables, and the stub of the extension."""

from __future__ import annotations

import ast
import importlib.util
import unicodedata
from typing import TYPE_CHECKING

import pytest

from encoder_engine import _native
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TABLES = (
    "csrc/text/unicode/categories.inc",
    "csrc/text/unicode/properties.inc",
    "csrc/text/unicode/decompositions.inc",
    "csrc/text/unicode/forms.inc",
    "csrc/text/unicode/graphemes.inc",
    "tests/text/oracle/unicode_ranges.py",
)


@pytest.mark.exhaustive
def test_the_unicode_tables_are_what_the_generator_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "csrc/tools")
    spec = importlib.util.spec_from_file_location(
        "make_unicode_tables", ROOT / "csrc/tools/make_unicode_tables.py"
    )
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    if unicodedata.unidata_version != generator.SOURCE_VERSION:
        pytest.skip(f"the generator runs on Unicode {generator.SOURCE_VERSION}")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    for name in TABLES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    assert generator.main() == 0
    for name in TABLES:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), name


def public(names: list[str]) -> set[str]:
    """Leave out what Python puts there itself."""
    return {name for name in names if not name.startswith("_")}


def test_the_stub_lists_exactly_what_the_extension_has() -> None:
    stub = ast.parse((ROOT / "encoder_engine/_native.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    constants = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert public(dir(_native)) == classes.keys() | functions | constants
    for name, node in classes.items():
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        assert public(dir(getattr(_native, name))) == public(list(methods)), name
