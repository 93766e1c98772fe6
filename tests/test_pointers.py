"""Files that Git LFS left as pointers, and pickles of other things, are named for what they are."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import EncoderEngineError
from encoder_engine.models import Encoder
from encoder_engine.text import Tokenizer
from tests.embedding.tiny_model import write_transformers_directory

if TYPE_CHECKING:
    from pathlib import Path

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "config.json", "vocab.txt", "tokenizer.json"]
)
def test_a_pointer_is_named_as_one(name: str, tmp_path: Path) -> None:
    folder = write_transformers_directory(tmp_path)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(POINTER)
    load = Tokenizer if "vocab" in name or "token" in name else Encoder
    with pytest.raises(EncoderEngineError, match=rf"{name} is a Git LFS pointer .*git lfs pull"):
        load.from_pretrained(folder)


class Other:
    """What no weights-only file holds."""


@pytest.mark.parametrize("content", [pickle.dumps(Other()), pickle.dumps({"a": 1}), b"\x80\x02x"])
def test_nobody_is_advised_to_run_what_a_pickle_holds(content: bytes, tmp_path: Path) -> None:
    folder = write_transformers_directory(tmp_path)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(EncoderEngineError) as error:
        Encoder.from_pretrained(folder)
    message = str(error.value)
    assert "pytorch_model.bin" in message
    assert "weights_only" not in message
    assert "PyTorch" not in message
