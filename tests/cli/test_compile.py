"""``encoder-engine compile``: the compiled folder gives what the original gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import encoder_engine as ee

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = ["one text", "two words"]


def test_a_compiled_folder_takes_the_models_place(run: Run, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    found = run("compile", model, folder)
    assert (found.code, found.errors, "Done" in found.output) == (0, "", True)
    assert not list(folder.rglob("model.safetensors"))
    expected = ee.Embedder.from_pretrained(model, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(ee.Embedder.from_pretrained(folder).encode(TEXTS), expected)
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert run("embed", lines, "-o", tmp_path / "v.npy", "-m", folder, "--quiet").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)


def test_int8_is_rounded_once(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("compile", model, tmp_path / "compiled", "--int8", "--dtype", "float32").code == 0
    compiled = ee.Embedder.from_pretrained(tmp_path / "compiled")
    original = ee.Embedder.from_pretrained(
        model, device="cpu", dtype="float32", quantization="int8"
    )
    np.testing.assert_array_equal(compiled.encode(TEXTS), original.encode(TEXTS))


def test_a_folder_that_exists_is_left_alone(run: Run, model: Path, tmp_path: Path) -> None:
    found = run("compile", model, tmp_path)
    assert (found.code, "--overwrite" in found.errors, list(tmp_path.iterdir())) == (1, True, [])
    assert run("compile", model, tmp_path, "--overwrite").code == 0
    assert run("compile", model, model, "--overwrite").code == 1
