"""``encoder-engine compile``: the compiled folder gives what the original gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import encoder_engine as ee
from tests.embedding.tiny_model import WIDTH, write_sentence_directory, write_transformers_directory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Run

TEXTS = ["one text", "two words"]


def test_a_compiled_folder_takes_the_models_place(run: Run, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    found = run("compile", "--model", model, "--output", folder)
    assert (found.code, found.errors, "Done" in found.output) == (0, "", True)
    assert not list(folder.rglob("model.safetensors"))
    expected = ee.Embedder.from_pretrained(model, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(ee.Embedder.from_pretrained(folder).encode(TEXTS), expected)
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert run("embed", lines, "-o", tmp_path / "v.npy", "-m", folder, "--quiet").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)


def test_int8_is_rounded_once(run: Run, model: Path, tmp_path: Path) -> None:
    assert (
        run(
            "compile",
            "--model",
            model,
            "--output",
            tmp_path / "compiled",
            "--int8",
            "--dtype",
            "float32",
        ).code
        == 0
    )
    compiled = ee.Embedder.from_pretrained(tmp_path / "compiled")
    original = ee.Embedder.from_pretrained(
        model, device="cpu", dtype="float32", quantization="int8"
    )
    np.testing.assert_array_equal(compiled.encode(TEXTS), original.encode(TEXTS))


def test_a_folder_that_exists_is_left_alone(run: Run, model: Path, tmp_path: Path) -> None:
    found = run("compile", "--model", model, "--output", tmp_path)
    assert (found.code, "--overwrite" in found.errors, list(tmp_path.iterdir())) == (1, True, [])
    assert run("compile", "--model", model, "--output", tmp_path, "--overwrite").code == 0
    found = run("compile", "--model", model, "--output", model, "--overwrite")
    assert (found.code, "is or holds the model" in found.errors) == (1, True)
    (tmp_path / "own" / "texts").mkdir(parents=True)
    found = run("compile", "--model", model, "--output", tmp_path / "own", "--overwrite")
    assert (found.code, "holds no compiled model" in found.errors) == (1, True)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["texts"]


def test_nothing_of_an_overwritten_folder_stays(run: Run, tmp_path: Path) -> None:
    cls, plain, folder = tmp_path / "cls", tmp_path / "plain", tmp_path / "compiled"
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True}
    write_sentence_directory(cls, pooling=pooling)
    write_transformers_directory(plain)
    assert run("compile", "--model", cls, "--output", folder).code == 0
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert run("compile", "--model", plain, "--output", folder, "--overwrite").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cls", "compiled", "plain"]
    run("compile", "--model", plain, "--output", tmp_path / "fresh")
    names = [sorted(path.name for path in each.iterdir()) for each in (folder, tmp_path / "fresh")]
    assert names[0] == names[1]
    np.testing.assert_array_equal(
        ee.Embedder.from_pretrained(folder, pooling="mean").encode(TEXTS),
        ee.Embedder.from_pretrained(plain, device="cpu", pooling="mean").encode(TEXTS),
    )


def test_a_compilation_that_fails_leaves_the_former_folder(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "compiled"
    assert run("compile", "--model", model, "--output", folder).code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ee.CompiledEncoder, "save_compiled", fail)
    found = run("compile", "--model", model, "--output", folder, "--int8", "--overwrite")
    assert (found.code, "No space left" in found.errors) == (1, True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert list(tmp_path.iterdir()) == [folder]
