"""Every way a command line can be wrong: one line of reason, no traceback, the right exit code."""

from __future__ import annotations

import json
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import EncoderEngineWarning
from tests.embedding.tiny_model import write_json, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

# Arguments ({folder} is full of things to trip over, {model} is good), exit code, words to find.
BAD_COMMANDS: dict[str, tuple[str, int, str]] = {
    "no verb": ("", 2, "Usage"),
    "an unknown verb": ("embd", 2, "embd"),
    "an unknown option": ("embed {folder}/a.txt --outptu x", 2, "--outptu"),
    "no input": ("embed -o {folder}/x.npy -m {model}", 2, "INPUT"),
    "no output": ("embed {folder}/a.txt -m {model}", 2, "--output"),
    "no model": ("embed {folder}/a.txt -o {folder}/x.npy", 2, "--model"),
    "a budget of nothing": ("embed {folder}/a.txt {good} --batch-tokens 0", 2, "batch-tokens"),
    "a budget of words": ("embed {folder}/a.txt {good} --batch-tokens many", 2, "integer"),
    "no threads": ("embed {folder}/a.txt {good} --threads 0", 2, "threads"),
    "an unknown precision": ("embed {folder}/a.txt {good} --precision int4", 2, "ubinary"),
    "an unknown format": ("embed {folder}/a.txt {good} --input-format xml", 2, "jsonl"),
    "a missing input": ("embed {folder}/aa.txt {good}", 1, "did you mean"),
    "a directory with a file of another kind": ("embed {folder} {good}", 1, "a.doc"),
    "a glob of nothing": ("embed {folder}/*.tsv {good}", 1, "matches no file"),
    "a folder of shards that is a file": (
        "embed {folder}/a.txt -o {folder}/old.npy -m {model} --shard-rows 2",
        1,
        "is a file",
    ),
    "a folder of shards named as a file": (
        "embed {folder}/a.txt -o {folder}/x.npy -m {model} --shard-rows 2",
        1,
        "names a file",
    ),
    "a folder of shards without a home": (
        "embed {folder}/a.txt -o {folder}/no/x/ -m {model}",
        1,
        "make it first",
    ),
    "a folder of shards that holds the inputs": (
        "embed {folder}/a.txt -o {folder} -m {model}",
        1,
        "holds inputs",
    ),
    "no workers": ("embed {folder}/a.txt {good} --workers 0", 2, "workers"),
    "unique ids without ids": ("embed {folder}/a.jsonl {good} --unique-ids", 1, "id column"),
    "a text that is too long": (
        "embed {folder}/long.txt {good} --max-characters 9",
        1,
        "the limit is 9",
    ),
    "a text cut where none may be": (
        "embed {folder}/long.txt {good} --on-truncation error",
        1,
        "longer than 16 tokens",
    ),
    "an empty input": ("embed {folder}/empty.txt {good}", 1, "no rows"),
    "an unknown ending": ("embed {folder}/a.doc {good}", 1, ".doc"),
    "latin-1": ("embed {folder}/latin.txt {good}", 1, "iconv"),
    "a column of plain lines": ("embed {folder}/a.txt {good} --column text", 1, "plain lines"),
    "a missing column": ("embed {folder}/a.jsonl {good} --column body", 1, "there are"),
    "a null": ("embed {folder}/null.jsonl {good}", 1, "line 2"),
    "an output without a home": (
        "embed {folder}/a.txt -o {folder}/no/x.npy -m {model}",
        1,
        "make it first",
    ),
    "an output of another kind": ("embed {folder}/a.txt -o {folder}/x.csv -m {model}", 1, ".npy"),
    "an output that exists": (
        "embed {folder}/a.txt -o {folder}/old.npy -m {model}",
        1,
        "--overwrite",
    ),
    "an output that is an input": (
        "embed {folder}/old.npy --input-format txt -o {folder}/old.npy -m {model} --overwrite",
        1,
        "one of the inputs",
    ),
    "ids that are an input": (
        "embed {folder}/q.ids.txt --input-format jsonl -o {folder}/q.npy -m {model} --overwrite "
        "--id-column id",
        1,
        "q.ids.txt is one of the inputs",
    ),
    "a missing model": ("embed {folder}/a.txt -o {folder}/x.npy -m {folder}/none", 1, "none"),
    "a model that is a file": (
        "embed {folder}/a.txt -o {folder}/x.npy -m {folder}/a.txt",
        1,
        "directory",
    ),
    "a model directory without a model": (
        "embed {folder}/a.txt -o {folder}/x.npy -m {folder}",
        1,
        "{folder}",
    ),
    "an unknown prompt": ("embed {folder}/a.txt {good} --prompt-name web", 1, "no prompt 'web'"),
    "two prompts": ("embed {folder}/a.txt {good} --prompt-name query --prompt x", 1, "not both"),
    "more features than there are": ("embed {folder}/a.txt {good} --truncate-dim 99", 1, "1..16"),
    "an unknown dtype": ("embed {folder}/a.txt {good} --dtype int4", 2, "bfloat16"),
    "an unknown device": ("embed {folder}/a.txt {good} --device nope", 1, "nope"),
    "tokenizing a missing file": ("tokenize {folder}/none.txt -m {model}", 1, "does not exist"),
    "tokenizing without a model": ("tokenize {folder}/a.txt", 2, "--model"),
    "tokenizing by a missing model": ("tokenize {folder}/a.txt -m {folder}/none", 1, "none"),
    "tokenizing by a folder outside the model": (
        "tokenize {folder}/a.txt -m {folder}/astray",
        1,
        "leads out",
    ),
    "no room for a token": ("tokenize {folder}/a.txt -m {model} --max-length 1", 1, "max_length"),
    "a doctor without a patient": ("doctor -m", 2, "argument"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fill a folder with things to trip over."""
    files: dict[str, bytes] = {
        "a.txt": b"a\n",
        "a.doc": b"a\n",
        "empty.txt": b"",
        "long.txt": b"long " * 40 + b"\n",
        "latin.txt": b"caf\xe9\n",
        "old.npy": b"precious",
        "q.ids.txt": b'{"text": "a", "id": 1}\n',
        "a.jsonl": b'{"text": "a"}\n',
        "null.jsonl": b'{"text": "a"}\n{"text": null}\n',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    write_json(tmp_path / "astray" / "modules.json", [{"path": ".."}])
    return tmp_path


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_a_bad_command_fails_in_one_line(run: Run, model: Path, folder: Path, case: str) -> None:
    command, code, word = BAD_COMMANDS[case]
    before = sorted(path.name for path in folder.iterdir())
    good = f"-o {folder}/x.npy -m {model}"
    result = run(*command.format(folder=folder, model=model, good=good).split())
    assert result.code == code
    assert word.format(folder=folder) in result.errors
    assert "Traceback" not in result.errors
    if code == 1:
        assert result.errors.startswith("error: ")
        assert result.errors.count("\n") == 1
        assert result.output == ""
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "old.npy").read_bytes() == b"precious"


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_traceback(run: Run, model: Path, folder: Path, place: str) -> None:
    arguments = ["tokenize", folder / "none.txt", "-m", model]
    flagged = ["--debug", *arguments] if place == "before" else [*arguments, "--debug"]
    result = run(*flagged)
    assert result.code == 1
    assert "Traceback" in result.errors
    assert "Traceback" not in run(*arguments).errors


def test_an_unexpected_error_is_one_line_too(
    run: Run, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a\nslip")

    monkeypatch.setattr("encoder_engine.inputs.readers.open_inputs", broken)
    result = run("tokenize", folder / "a.txt", "-m", model)
    assert result.code == 1
    assert result.errors == "error: unexpected ZeroDivisionError: a slip (see it with --debug)\n"


def test_an_interrupt_is_one_line_and_leaves_nothing(
    run: Run, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("encoder_engine.jobs.workers.compute_window", interrupt)
    result = run("embed", folder / "a.txt", "-o", folder / "x.npy", "-m", model)
    assert result.code == 1
    assert "error: stopped; nothing is kept" in result.errors
    assert "a folder as the output (-o FOLDER/) keeps what is done" in result.errors
    assert not list(folder.glob("x.npy*"))


def test_warnings_are_one_line_on_standard_error(run: Run, tmp_path: Path) -> None:
    write_sentence_directory(tmp_path)
    (tmp_path / "modules.json").unlink()
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    result = run("embed", tmp_path / "a.txt", "-o", tmp_path / "x.npy", "-m", tmp_path, "--json")
    assert result.code == 0
    assert result.errors.startswith("warning: ")
    assert "--pooling (cls," in result.errors
    assert json.loads(result.output)["rows"] == 1


def test_a_warning_of_several_lines_is_one_line_too(
    run: Run, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line had no mark of a warning."""

    def warn(*_arguments: object, **_options: object) -> list[Any]:
        warnings.warn(EncoderEngineWarning("a\n  warning"), stacklevel=1)
        return []

    monkeypatch.setattr("encoder_engine.inputs.readers.open_inputs", warn)
    result = run("tokenize", folder / "a.txt", "-m", model)
    assert (result.code, result.errors) == (0, "warning: a warning\n")


def test_a_parquet_output_without_pyarrow_names_the_extra(
    run: Run, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("embed", folder / "a.txt", "-o", folder / "x.parquet", "-m", model)
    assert result.code == 1
    assert "pip install '.[data]'" in result.errors


def test_a_model_that_gives_nan_is_refused(run: Run, tmp_path: Path) -> None:
    import torch

    from encoder_engine.models import Encoder

    write_sentence_directory(tmp_path)
    encoder = Encoder.from_pretrained(tmp_path)
    with torch.no_grad():
        encoder.embedding.tokens.weight[:] = float("nan")
    encoder.save_pretrained(tmp_path)
    write_json(tmp_path / "a.jsonl", {"text": "a"})
    result = run("embed", tmp_path / "a.jsonl", "-o", tmp_path / "x.npy", "-m", tmp_path)
    assert result.code == 1
    assert "NaN" in result.errors
    assert not list(tmp_path.glob("x.npy*"))
