"""``encoder-engine card``: broken records are refused by name; only paths lose their folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

__all__ = ["run"]

pytestmark = pytest.mark.slow
COUNTS: dict[str, Any] = {
    **dict.fromkeys(("read", "kept", "characters", "with_personal"), 1),
    **{name: {} for name in ("dropped", "languages", "personal")},
}
MANIFEST: dict[str, Any] = {
    "inputs": [{"name": "a.jsonl", "bytes": None}],
    "settings": {},
    "counts": COUNTS,
    "sha256": "0",
    "version": "0",
}


def test_a_partial_manifest_is_refused_by_what_it_lacks(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.manifest.json"
    path.write_text(json.dumps(MANIFEST))
    assert "| 1. a.jsonl | size unknown |" in run("card", path).output
    broken: list[tuple[dict[str, Any], str]] = [
        *(({name: None}, name) for name in ("inputs", "settings", "sha256", "version")),
        *(({"counts": {**COUNTS, name: None}}, f"counts.{name}") for name in COUNTS),
        ({"inputs": [{"bytes": 3}]}, "inputs[0].name"),
        ({"inputs": [{"name": "a", "bytes": "3"}]}, "inputs[0].bytes"),
    ]
    for change, where in broken:
        path.write_text(json.dumps({**MANIFEST, **change}))
        result = run("card", path)
        assert result.code == 1
        assert f"{where} must be" in result.errors
    for name in MANIFEST:
        path.write_text(json.dumps({key: MANIFEST[key] for key in MANIFEST if key != name}))
        result = run("card", path)
        assert result.code == 1
        assert f"{name} must be" in result.errors


def test_only_paths_lose_their_folders(run: Run, tmp_path: Path) -> None:
    # Every value was cut at a slash, and whatever lay in an object kept its folders.
    recipe = {
        "task": {"labels": ["N/A", "and/or"], "name": "km/h"},
        "model": {"checkpoint": "maria/bert/", "config": {"_name_or_path": "maria/bert"}},
        "data": {"train": ["maria/a.jsonl", "/home/maria/b.jsonl"], "header": []},
        "objectives": {"teacher": "maria/teacher", "other": {"deep": ["~maria/c", "/maria/d"]}},
    }
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    data = {"train": {"files": ["maria/a.jsonl"], "rows": 3}, "dev": None}
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "report.json").write_text(json.dumps({"scores": {"f1": 0.5}}))
    page = run("card", tmp_path).output
    assert "maria" not in page
    for shown in ("N/A, and/or", "km/h", "| checkpoint | bert |", "a.jsonl, b.jsonl", "teacher |"):
        assert shown in page
    assert "| f1 | 0.5 |" in page


@pytest.mark.parametrize(
    ("report", "where"),
    [
        ({}, "scores must be an object, but is missing"),
        ({"scores": {"f1": "x"}}, "scores.f1 must be a number"),
        ({"scores": {"f1": 1}, "intervals": {"f1": {"low": 0}}}, "intervals.f1.high must be"),
    ],
)
def test_a_broken_report_is_refused(
    report: dict[str, Any], where: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    (tmp_path / "report.json").write_text(json.dumps(report))
    result = run("card", tmp_path)
    assert result.code == 1
    assert where in result.errors
