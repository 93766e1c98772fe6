"""Files are read strictly, written whole, and compared with every checksum that was recorded."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from encoder_engine import files, folders
from encoder_engine.errors import (
    ChecksumError,
    ConfigError,
    EncoderEngineWarning,
    LockedError,
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


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_nothing_can_be_locked_a_run_goes_on_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_descriptor: int, _kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(
            EncoderEngineWarning, match="has no locks .*do not start a second run"
        ) as told,
        files.FolderLock(tmp_path),
    ):
        assert (tmp_path / files.LOCK_NAME).read_text("ascii") == f"{os.getpid()}\n"
    assert told[0].filename == __file__
    assert not (tmp_path / files.LOCK_NAME).exists()


def test_a_system_without_locks_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_NOFOLLOW")
    for lock in (files.refuse_locked, lambda folder: files.FolderLock(folder).__enter__()):
        with pytest.raises(OutputError, match=r"cannot be locked: .*compute in memory here"):
            lock(tmp_path)
    assert not list(tmp_path.iterdir())


def test_many_may_look_at_a_lock_at_once(tmp_path: Path) -> None:
    path = tmp_path / files.LOCK_NAME
    path.write_text("4711\n", encoding="ascii")
    with path.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        files.refuse_locked(tmp_path)
    assert path.read_text("ascii") == "4711\n"


def test_a_run_begins_while_another_looks_at_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LOCK_SECONDS", 60.0)
    path = tmp_path / files.LOCK_NAME
    path.write_text("4711\n", encoding="ascii")
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    looking = threading.Timer(0.03, os.close, [descriptor])
    looking.start()
    with files.FolderLock(tmp_path):
        assert path.read_text("ascii") == f"{os.getpid()}\n"
    looking.join()


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["running", "gone", "none", "nobody"])
def test_a_lock_names_its_holder_only_where_that_runs(tmp_path: Path, holder: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    numbers = {"running": str(os.getpid()), "gone": str(ended.pid), "none": "", "nobody": "0"}
    path = tmp_path / files.LOCK_NAME
    path.write_text(f"{numbers[holder]}\n", encoding="ascii")
    words = rf"another run{rf' .process {os.getpid()}.' if holder == 'running' else ''};"
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match=words):
            files.refuse_locked(tmp_path)
        with pytest.raises(LockedError, match=words):
            files.FolderLock(tmp_path).__enter__()


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
