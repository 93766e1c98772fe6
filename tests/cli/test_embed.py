"""``encoder-engine embed``: the vectors of ``Embedder.encode``, on disk, and nothing half."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.cli.embed import DTYPES
from encoder_engine.cli.embed_report import _duration
from encoder_engine.embedding import Embedder
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = ["the text", "a row", "", "long " * 30]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def expected(model: Path, texts: list[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return Embedder.from_pretrained(model).encode(texts, on_truncation="ignore")


def test_vectors_come_in_the_order_of_the_rows_with_a_summary(
    run: Run, model: Path, tmp_path: Path
) -> None:
    path, out = write_jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out.npy"
    result = run("embed", path, "-o", out, "-m", model, "--id-column", "id")
    assert (result.code, result.errors) == (0, "")
    np.testing.assert_array_equal(np.load(out), expected(model, TEXTS))
    ids = (tmp_path / "out.ids.txt").read_text("utf-8").split()
    assert ids == ["row-0", "row-1", "row-2", "row-3"]
    assert "4 x 16" in result.output
    assert "1, longer than 16 tokens" in result.output


def test_json_gives_the_summary_to_machines(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    path = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    result = run("embed", path, "-o", out, "-m", model, "--json")
    summary = json.loads(result.output)
    assert (summary["rows"], summary["truncated_rows"], summary["dimension"]) == (4, 1, 16)
    tokens = Embedder.from_pretrained(model).tokenizer.encode_batch(TEXTS, max_length=16)
    assert summary["tokens"] == len(tokens.ids)
    assert set(summary["seconds"]) == {"load", "read", "tokenize", "encode", "write", "total"}
    # Stages overlap: only each of them is no longer than the whole.
    assert all(0 < value <= summary["seconds"]["total"] for value in summary["seconds"].values())


def test_quiet_says_nothing(run: Run, model: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    result = run("embed", path, "-o", tmp_path / "a.npy", "-m", model, "--quiet")
    assert (result.code, result.output, result.errors) == (0, "", "")


def test_a_terminal_gets_a_bar_with_rates(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    path = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    result = run("embed", path, "-o", tmp_path / "a.npy", "-m", model)
    assert result.code == 0
    for word in ("100%", "4 rows", "rows/s", "tokens/s"):
        assert word in result.errors


def test_options_reach_the_embedder(run: Run, model: Path, tmp_path: Path) -> None:
    path, out = write_jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out.npy"
    options = ["--prompt", "query: ", "--truncate-dim", 5, "--no-normalize", "--batch-tokens", 3]
    assert run("embed", path, "-o", out, "-m", model, *options).code == 0
    found = Embedder.from_pretrained(model).encode(
        TEXTS, prompt="query: ", truncate_dim=5, normalize_embeddings=False, on_truncation="ignore"
    )
    np.testing.assert_array_equal(np.load(out), found)
    bits = ["--precision", "ubinary", "--prompt-name", "query", "--overwrite"]
    assert run("embed", path, "-o", out, "-m", model, *bits).code == 0
    assert np.load(out).shape == (4, 2)


def test_eight_bit_integers_compute_here_as_there(run: Run, model: Path, tmp_path: Path) -> None:
    path, out = write_jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out.npy"
    assert run("embed", path, "-o", out, "-m", model, "--quantization", "int8").code == 0
    embedder = Embedder.from_pretrained(model, quantization="int8")
    np.testing.assert_array_equal(np.load(out), embedder.encode(TEXTS, on_truncation="ignore"))
    assert not np.array_equal(np.load(out), expected(model, TEXTS))


def test_every_number_format_offered_is_one_the_encoder_knows() -> None:
    from encoder_engine.models.placement import _DTYPES

    assert sorted(DTYPES) == sorted(["auto", *_DTYPES])


def test_the_thread_count_changes_no_vector(run: Run, model: Path, tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    path, out = write_jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out.npy"
    try:
        assert run("embed", path, "-o", out, "-m", model, "--threads", 1).code == 0
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(np.load(out), expected(model, TEXTS))


def test_every_format_gives_the_same_vectors(run: Run, model: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (tmp_path / "in.csv").write_text(
        "text,n\n" + "".join(f'"{text}",1\n' for text in TEXTS), encoding="utf-8"
    )
    parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "in.parquet")
    write_jsonl(tmp_path / "in.jsonl", TEXTS)
    vectors = expected(model, TEXTS)
    for name in ("in.txt", "in.csv", "in.parquet", "in.jsonl"):
        out = tmp_path / f"{name}.parquet"
        assert run("embed", tmp_path / name, "-o", out, "-m", model).code == 0
        column = parquet.read_table(out).column("embedding").combine_chunks()
        np.testing.assert_array_equal(column.flatten().to_numpy().reshape(4, -1), vectors)


def test_several_inputs_and_standard_input_follow_one_another(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("the text\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a row\n")))
    out = tmp_path / "out.npy"
    assert run("embed", tmp_path / "a.txt", "-", "-o", out, "-m", model).code == 0
    np.testing.assert_array_equal(np.load(out), expected(model, ["the text", "a row"]))


def test_a_bad_row_late_in_the_input_leaves_no_output(
    run: Run, model: Path, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["a"] * 5000)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"id": "x"}\n')
    result = run("embed", path, "-o", tmp_path / "out.npy", "-m", model, "--id-column", "id")
    assert result.code == 1
    assert "in.jsonl, line 5001: no column 'text'" in result.errors
    assert result.errors.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl"]


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_a_killed_run_leaves_nothing_that_looks_finished(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"out.{ending}"
    command = ["embed", "-", "-o", str(out), "--model", str(model), "--quiet"]
    command += ["--input-format", "jsonl", "--id-column", "id"]
    process = subprocess.Popen(
        [sys.executable, "-m", "encoder_engine.cli", *command], stdin=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    row = b'{"id": %d, "text": "%d"}\n'
    try:
        # Two windows and a bit: something is written, and the process waits for more.
        process.stdin.writelines(row % (i, i) for i in range(10_000))
        process.stdin.flush()
        deadline = time.monotonic() + 120
        while not any(p.stat().st_size > 4096 for p in tmp_path.glob(f"_out.{ending}.*.partial")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
    assert not out.exists()
    assert not (tmp_path / "out.ids.txt").exists()
    assert all(path.suffix == ".partial" for path in tmp_path.iterdir())
    # And the same command runs to its end afterwards, over what was left behind.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(row % (1, 1))))
    assert run(*command).code == 0
    assert out.exists()


def test_no_list_of_skipped_rows_is_removed_that_is_not_the_outputs(
    run: Run, model: Path, tmp_path: Path
) -> None:
    source, others = tmp_path / "w.skipped.jsonl", tmp_path / "v.skipped.jsonl"
    for path in (source, others):
        path.write_text('{"text": "a"}\n', encoding="utf-8")
    command = ("embed", source, "-m", model, "--quiet")
    result = run(*command, "-o", tmp_path / "w.npy", "--overwrite")
    assert (result.code, "is one of the inputs" in result.errors) == (1, True)
    result = run(*command, "-o", tmp_path / "v.npy")
    assert (result.code, "v.skipped.jsonl exists" in result.errors) == (1, True)
    assert (source.exists(), others.exists()) == (True, True)
    result = run(*command, "-o", tmp_path / "v.npy", "--overwrite")
    assert (result.code, "is not a list of skipped rows" in result.errors) == (1, True)
    assert others.read_text("utf-8") == '{"text": "a"}\n'
    others.write_text('{"file": "a", "number": 1, "reason": "b"}\n', encoding="utf-8")
    assert run(*command, "-o", tmp_path / "v.npy", "--overwrite").code == 0
    assert not others.exists()
    (tmp_path / "v.ids.txt").write_text("precious\nlines\n", encoding="utf-8")
    result = run(*command, "-o", tmp_path / "v.npy", "--overwrite")
    assert (result.code, "ids do not belong" in result.errors) == (1, True)
    assert (tmp_path / "v.ids.txt").read_text("utf-8") == "precious\nlines\n"


def test_without_a_terminal_a_line_tells_how_far_it_is(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encoder_engine.cli.common.LINE_SECONDS", 0.0)
    path = write_jsonl(tmp_path / "in.jsonl", ["text"] * 300)
    result = run("embed", path, "-o", f"{tmp_path}/out/", "-m", model)
    assert result.code == 0
    lines = result.errors.splitlines()
    assert len(lines) > 1
    for line in lines:
        assert re.fullmatch(
            r"Embedding  \d+ rows  [\d,]+ rows/s  [\d,]+ tokens/s  \d+% padding saved"
            r"(  \d+%, \d+ s left)?",
            line,
        ), line
    again = run("embed", path, "-o", f"{tmp_path}/out/", "-m", model)
    assert "nothing left to do" in again.output
    assert "rows/s" not in again.output
    for quiet in ("--quiet", "--json"):
        assert run("embed", path, "-o", tmp_path / f"{quiet}.npy", "-m", model, quiet).errors == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (720, "12 min"), (12_000, "3 h 20 min")]
)
def test_a_time_left_is_written_for_people(seconds: float, text: str) -> None:
    assert _duration(seconds) == text


def test_vectors_are_not_written_to_standard_output(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "in.jsonl", TEXTS)
    result = run("embed", "in.jsonl", "-o", "-", "-m", model)
    assert (result.code, "name a file, or a folder" in result.errors) == (2, True)
    assert not (tmp_path / "-").exists()


def test_a_pooling_that_nobody_knows_is_named(run: Run, model: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    result = run("embed", path, "-o", tmp_path / "a.npy", "-m", model, "--pooling", "mean,most")
    assert (result.code, "most" in result.errors) == (1, True)
    assert (
        run("embed", path, "-o", tmp_path / "a.npy", "-m", model, "--pooling", "mean,max").code == 0
    )
    assert np.load(tmp_path / "a.npy").shape == (4, 32)
