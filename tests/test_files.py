"""Files are read strictly, written whole, and compared with every checksum that was recorded."""

from __future__ import annotations

import base64
import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

from encoder_engine import files, folders
from encoder_engine.errors import (
    ChecksumError,
    ConfigError,
    OutputError,
)
from encoder_engine.json_values import read_json

if TYPE_CHECKING:
    from pathlib import Path


def test_a_packages_record_is_a_checksum(tmp_path: Path) -> None:
    model = tmp_path / "some_model" / "model"
    model.mkdir(parents=True)
    (model / "weights.bin").write_bytes(b"weights")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"weights").digest()).rstrip(b"=").decode()
    record = tmp_path / "some_model-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text(f"some_model/model/weights.bin,sha256={digest},7\nsome_model/x.py,,\n")
    files.verify_checksums(model)
    (model / "weights.bin").write_bytes(b"weighs")
    with pytest.raises(ChecksumError, match=r"weights\.bin has SHA-256"):
        files.verify_checksums(model)
    files.verify_checksums(model, only=["other.bin"])


def test_any_flipped_bit_of_the_packaged_weights_is_found(minilm: Path, tmp_path: Path) -> None:
    recorded = files.recorded_checksums(minilm)
    assert "model.safetensors" in recorded
    site, package = minilm.parents[1], minilm.parent.name
    shutil.copytree(minilm, tmp_path / package / "model")
    (info,) = site.glob(f"{package}-*.dist-info")
    shutil.copytree(info, tmp_path / info.name)
    weights = tmp_path / package / "model" / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(ChecksumError, match=r"model\.safetensors"):
        files.verify_checksums(weights.parent)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    files.write_atomically(target, b"old")
    pending = files.PendingFile(target, overwrite=True)
    pending.stream.write(b"half")
    pending.discard()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_target_that_is_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"there")
    with pytest.raises(OutputError, match="exists"):
        files.PendingFile(tmp_path / "file", overwrite=False)
    with pytest.raises(OutputError, match="is a directory"):
        files.check_target(tmp_path, overwrite=True)
    with pytest.raises(OutputError, match="make it first"):
        files.check_target(tmp_path / "absent" / "file", overwrite=True)


BAD_JSON = {
    "broken": (b"{", "line 1: not valid JSON"),
    "twice": (b'{"a": 1, "a": 2}', "'a' occurs twice"),
    "deep": (b"[" * 100_000, "not usable JSON"),
    "huge": (b"1" * 5000, "not usable JSON"),
    "not UTF-8": (b'"\xff"', "byte 1 is wrong"),
    "marked": (b"\xef\xbb\xbf{}", "byte order mark"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_json_that_is_not_usable_is_refused(name: str, tmp_path: Path) -> None:
    content, message = BAD_JSON[name]
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_json(tmp_path / "a.json", ConfigError)


def test_a_folder_that_is_being_replaced_is_passed_over_by_readers(tmp_path: Path) -> None:
    for _ in range(2):
        with folders.replacing_folder(tmp_path / "model") as new:
            (new / "weights.bin").touch()
            assert all(path.name[0] == "_" for path in tmp_path.iterdir() if path.name != "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
