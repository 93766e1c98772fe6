"""Every bad input of the catalogue is one typed line, or a row that is listed and left out."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from tests.cli.bad_inputs import CATALOGUE
from tests.cli.bad_places import PLACES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture
def failed_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[], type[BaseException] | None]:
    """Give a function that tells the type of the error behind the last command's line."""
    import encoder_engine.cli as commands

    seen: list[type[BaseException] | None] = []
    fail = commands._fail

    def watch(reason: str) -> int:
        seen.append(sys.exc_info()[0])
        return fail(reason)

    monkeypatch.setattr(commands, "_fail", watch)
    return lambda: seen[-1] if seen else None


def test_the_catalogue_is_long_and_no_case_is_there_twice() -> None:
    assert len(CATALOGUE) + len(PLACES) >= 170
    inputs = {(tuple(case.files.items()), case.options) for case in CATALOGUE.values()}
    places = {(case.arguments, case.prepare) for case in PLACES.values()}
    assert (len(inputs), len(places)) == (len(CATALOGUE), len(PLACES))


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_bad_input_is_one_typed_line_and_leaves_nothing_finished(
    run: Run,
    model: Path,
    tmp_path: Path,
    failed_with: Callable[[], type[BaseException] | None],
    name: str,
) -> None:
    case = CATALOGUE[name]
    for file, content in case.files.items():
        (tmp_path / file).write_bytes(content() if callable(content) else content)
    first = tmp_path / next(iter(case.files))
    command = ["embed", first, "-o", f"{tmp_path}/out/", "-m", model, *case.options.split()]
    policies = [] if case.listed is not None else [["--on-error", "skip"]]
    for policy in [[], *policies]:
        result = run(*command, *policy)
        assert result.code == 1
        assert re.fullmatch(r"(resumed from [^\n]+\n)?error: [^\n]+\n", result.errors), (
            result.errors
        )
        assert re.search(case.words, result.errors), result.errors
        assert first.name in result.errors
        found = failed_with()
        assert found is not None
        assert issubclass(found, case.error)
        assert not (tmp_path / "out" / "_manifest.json").exists()
        assert not list(tmp_path.glob("out/*.partial"))


@pytest.mark.parametrize("name", [name for name, case in CATALOGUE.items() if case.listed])
def test_bad_rows_are_listed_and_the_others_embedded(
    run: Run, model: Path, tmp_path: Path, name: str
) -> None:
    case = CATALOGUE[name]
    assert case.listed is not None
    (file, content), good = next(iter(case.files.items())), tmp_path / "z-good.txt"
    (tmp_path / file).write_bytes(content() if callable(content) else content)
    # With a good file beside it, something is left of every case.
    good.write_bytes(b"good\n")
    inputs = [tmp_path / file] if case.options or file.endswith("csv") else [tmp_path / file, good]
    nothing_left = len(inputs) == 1 and case.listed[0][0] == 0
    command = ["embed", *inputs, "-o", tmp_path / "out.npy", "-m", model, "--on-error", "skip"]
    result = run(*command, *case.options.split(), "--json")
    if nothing_left:
        assert "no rows" in result.errors
        return
    assert (result.code, result.errors) == (0, "")
    summary = json.loads(result.output)
    lines = (tmp_path / "out.skipped.jsonl").read_text("ascii").splitlines()
    found = [json.loads(line) for line in lines]
    assert summary["skipped_rows"] == len(found) == len(case.listed)
    for entry, (number, words) in zip(found, case.listed, strict=True):
        assert entry["file"] == str(tmp_path / file)
        assert entry["number"] == number
        assert re.search(words, entry["reason"]), entry
    assert len(np.load(tmp_path / "out.npy")) == summary["rows"] > 0


class Embed:
    """Runs ``embed`` with the model."""

    def __init__(self, run: Run, model: Path) -> None:
        self.run, self.model = run, model

    def __call__(self, *arguments: object) -> None:
        assert self.run("embed", *arguments, "-m", self.model, "--quiet").code == 0


@pytest.mark.parametrize("name", PLACES)
def test_a_bad_place_is_one_typed_line(
    run: Run,
    model: Path,
    tmp_path: Path,
    failed_with: Callable[[], type[BaseException] | None],
    name: str,
) -> None:
    case = PLACES[name]
    rows = [json.dumps({"text": f"text {row}", "id": row}) + "\n" for row in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(rows), "utf-8")
    arguments = case.arguments.format(folder=tmp_path, model=model).split()
    arguments += [] if "-m" in arguments else ["-m", str(model)]
    arguments += [] if "-o" in arguments else ["-o", f"{tmp_path}/out/"]
    with case.prepare(tmp_path, Embed(run, model)):
        result = run("embed", *arguments)
    assert result.code == 1
    assert re.fullmatch(r"error: [^\n]+\n", result.errors), result.errors
    assert re.search(case.words, result.errors), result.errors
    found = failed_with()
    assert found is not None
    assert issubclass(found, case.error), found
    assert not [path for path in tmp_path.rglob("*.partial") if path.is_file()]
