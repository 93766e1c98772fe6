"""A file that is listed in a SHA256SUMS, anywhere in a model directory, is compared before use."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine import files
from encoder_engine.embedding import Embedder, encoder_directory
from encoder_engine.errors import ChecksumError
from encoder_engine.opening.compiling import compile_directory
from tests.embedding.tiny_model import write_json, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = ("config.json", "sentence_bert_config.json", "tokenizer_config.json", "vocab.txt")
FLAT = (*SETTINGS, "config_sentence_transformers.json", "model.safetensors", "modules.json")
ENCODER = "0_Transformer"


def write_flat(folder: Path) -> Path:
    """Write a directory whose encoder lies at its root."""
    return write_sentence_directory(folder, settings={"prompts": {}})


def write_nested(folder: Path) -> Path:
    """Write a directory whose encoder has a folder of its own, without a record."""
    write_flat(folder)
    (folder / ENCODER).mkdir()
    for name in (*SETTINGS, "model.safetensors"):
        (folder / name).rename(folder / ENCODER / name)
    (folder / "SHA256SUMS").unlink()
    kinds = {"Transformer": ENCODER, "Pooling": "1_Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for kind, path in kinds.items()
    ]
    write_json(folder / "modules.json", modules)
    return folder


def record(folder: Path) -> None:
    """Record every file of a folder and below, as ``sha256sum`` does."""
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in paths
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def damage(path: Path) -> None:
    """Change a file so that only its checksum, not its content, gives it away."""
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("name", [*FLAT, "1_Pooling/config.json"])
def test_the_directorys_record_is_held_to(tmp_path: Path, name: str) -> None:
    record(write_flat(tmp_path))
    Embedder.from_pretrained(tmp_path)
    damage(tmp_path / name)
    with pytest.raises(ChecksumError, match=name):
        Embedder.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", [*SETTINGS, "model.safetensors"])
@pytest.mark.parametrize("place", ["", ENCODER])
def test_an_encoder_in_a_folder_is_held_to_either_record(
    tmp_path: Path, name: str, place: str
) -> None:
    record(write_nested(tmp_path) / place)
    Embedder.from_pretrained(tmp_path)
    damage(tmp_path / ENCODER / name)
    with pytest.raises(ChecksumError, match=name):
        Embedder.from_pretrained(tmp_path)


def test_a_pooling_folder_is_held_to_its_own_record(tmp_path: Path) -> None:
    record(write_nested(tmp_path) / "1_Pooling")
    damage(tmp_path / "1_Pooling" / "config.json")
    with pytest.raises(ChecksumError, match="1_Pooling"):
        Embedder.from_pretrained(tmp_path)


def test_a_tokenizer_alone_is_held_to_the_record(tmp_path: Path) -> None:
    record(write_nested(tmp_path))
    assert encoder_directory(tmp_path) == tmp_path / ENCODER
    damage(tmp_path / ENCODER / "model.safetensors")
    encoder_directory(tmp_path)
    damage(tmp_path / ENCODER / "vocab.txt")
    with pytest.raises(ChecksumError, match=r"vocab\.txt"):
        encoder_directory(tmp_path)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often a file of each name is hashed."""
    counts: Counter[str] = Counter()
    digest = files.file_sha256

    def counted(path: Path) -> str:
        counts[path.name] += 1
        return digest(path)

    monkeypatch.setattr(files, "file_sha256", counted)
    return counts


def test_a_compiled_file_is_mapped_and_not_hashed(tmp_path: Path, hashed: Counter[str]) -> None:
    compile_directory(write_flat(tmp_path / "plain"), tmp_path / "compiled")
    record(tmp_path / "compiled")
    hashed.clear()
    Embedder.from_pretrained(tmp_path / "compiled")
    assert hashed["vocab.txt"] >= 1
    assert hashed["compiled.safetensors"] == 0


@pytest.mark.parametrize("write", [write_flat, write_nested])
def test_weights_are_hashed_once(tmp_path: Path, hashed: Counter[str], write: Any) -> None:
    write(tmp_path)
    for folder in {path.parent for path in tmp_path.rglob("config.json")}:
        record(folder)
    record(tmp_path)
    hashed.clear()
    Embedder.from_pretrained(tmp_path)
    assert hashed["model.safetensors"] == 1
    assert hashed["vocab.txt"] >= 1
