"""Imports go down only: who may import whom, checked on every import statement there is."""

from __future__ import annotations

import pytest

from tests.architecture.sources import Import, imports, module_name, sources

FLOORS: list[set[str]] = [
    {
        "kernels",
        "_native",
        "dataclass",
        "dependencies",
        "errors",
        "files",
        "folders",
        "json_values",
        "lazy",
        "locks",
        "positions",
        "quota",
        "records",
        "strings",
        "warn",
    },
    {"ops", "text", "packing", "pages", "families", "inputs", "metrics"},
    {"inference"},
    {"models", "vectors"},
    {"objectives", "data"},
    {"engine", "opening"},
    {"kinds"},
    {"jobs"},
    {"training", "embedding"},
    {"tasks"},
    {"prediction"},
    {"finetuning", "analysis", "serving"},
    {"cli", "integrations"},
]
# The rooms of one floor do not see each other, but for these.
SAME_FLOOR = {
    ("ops", "packing"),
    ("text", "inputs"),
    ("text", "packing"),
    ("dependencies", "errors"),
    ("files", "errors"),
    ("folders", "files"),
    ("json_values", "dataclass"),
    ("json_values", "errors"),
    ("json_values", "files"),
    ("json_values", "strings"),
    ("lazy", "errors"),
    ("locks", "errors"),
    ("positions", "errors"),
    ("records", "errors"),
    ("records", "files"),
    ("records", "locks"),
}
ONLY_IMPORTERS = {"kernels": {"ops"}, "_native": {"inference", "inputs", "ops", "text"}}
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sources("encoder_engine", "kernels")


def room(module: str) -> str:
    """Return the part of the package a module belongs to; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def violation(found: Import) -> str | None:
    """Say what is wrong with an import, or None."""
    here = room(found.importer)
    top = found.imported.split(".")[0]
    if top in {"benchmarks", "tests", "kernels"}:
        return f"imports {top}"
    if top == "triton" and here != "kernels":
        return "only kernels may import triton"
    if top == "pybind11":
        return "nothing imports pybind11"
    if top != "encoder_engine" or here == "":
        return None
    there = room(found.imported)
    if there == here:
        return None
    if there not in FLOOR_OF:
        return f"imports {found.imported}, which belongs to no floor"
    if there in ONLY_IMPORTERS and here not in ONLY_IMPORTERS[there]:
        return f"only {ONLY_IMPORTERS[there]} may import {there}"
    up = FLOOR_OF[there] > FLOOR_OF[here]
    beside = FLOOR_OF[there] == FLOOR_OF[here] and (here, there) not in SAME_FLOOR
    return f"{here} may not import {there}" if up or beside else None


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_down_only(path: object) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    wrong = [
        f"line {found.line}: {reason}" for found in imports(path) if (reason := violation(found))
    ]
    assert not wrong, "; ".join(wrong)


def test_every_part_of_the_package_has_a_floor() -> None:
    rooms = {room(module_name(path)) for path in FILES} - {""}
    assert rooms <= set(FLOOR_OF)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("encoder_engine.ops.attention", "encoder_engine.models.Encoder"),
        ("encoder_engine.text.tokenizer", "encoder_engine.ops.linear"),
        ("encoder_engine.models.layers", "encoder_engine.kernels.attention"),
        ("encoder_engine.models.layers", "triton"),
        ("encoder_engine.cli.embed", "encoder_engine._native"),
        ("encoder_engine.data.loader", "encoder_engine.objectives.mlm"),
        ("encoder_engine.kernels.attention.forward", "encoder_engine.packing.Sequences"),
        ("encoder_engine.models.layers", "encoder_engine.newcomer"),
        ("encoder_engine.models.layers", "benchmarks.measuring.measure"),
    ],
)
def test_an_import_that_goes_up_would_be_seen(importer: str, imported: str) -> None:
    assert violation(Import(importer, imported, 1)) is not None
