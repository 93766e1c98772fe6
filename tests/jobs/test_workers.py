"""Several processes: the bytes of one, errors that arrive, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encoder_engine.embedding import Embedder
from encoder_engine.errors import ConfigError, InputError, RowError, SequenceLengthError
from encoder_engine.jobs.workers import make_current, worker_devices
from encoder_engine.models import Encoder
from tests import ROOT
from tests.embedding.kill_long import contents

NUM_ROWS = 9000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in") / "a.txt"
    path.write_text("".join(f"text {row}\n" for row in range(NUM_ROWS)), encoding="utf-8")
    return path


def test_two_processes_write_the_bytes_of_one(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    tiny.encode_dataset(source, tmp_path / "one", shard_rows=1500)
    summary = tiny.encode_dataset(source, tmp_path / "two", shard_rows=1500, workers=2)
    assert (summary.rows, summary.workers) == (NUM_ROWS, 2)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    (tmp_path / "two" / "part-00003.npy").unlink()
    summary = tiny.encode_dataset(source, tmp_path / "two", shard_rows=1500, workers=2)
    assert summary.resumed_rows == NUM_ROWS - 1500
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_an_error_in_a_worker_arrives_as_it_is(tiny: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n" * 5000 + "long " * 40 + "\n", encoding="utf-8")
    with pytest.raises(SequenceLengthError) as caught:
        tiny.encode_dataset(path, tmp_path / "out/", workers=2, on_truncation="error")
    assert caught.value.row == 5000


def test_a_bad_row_keeps_the_shards_before_it(tiny: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * 1050 + '{"text": 3}\n', encoding="utf-8")
    with pytest.raises(RowError, match=r"1,000 rows are kept"):
        tiny.encode_dataset(path, tmp_path / "out/", workers=2, shard_rows=100)


def test_workers_refuse_what_they_cannot_load_again(
    tiny: Embedder, tiny_directory: Path, source: Path, tmp_path: Path
) -> None:
    made = Embedder(tiny.encoder, tiny.tokenizer, tiny.recipe)
    with pytest.raises(InputError, match="from_pretrained"):
        made.encode_dataset(source, tmp_path / "out/", workers=2)
    changed = Embedder.from_pretrained(tiny_directory, device="cpu", engine="torch")
    assert isinstance(changed.encoder, Encoder)
    with torch.no_grad():
        changed.encoder.embedding.tokens.weight[5, 0] += 1
    with pytest.raises(ConfigError, match=r"another model .*model\.fingerprint"):
        changed.encode_dataset(source, tmp_path / "out/", workers=2)
    pooled = Embedder.from_pretrained(tiny_directory, device="cpu")
    pooled.recipe = replace(pooled.recipe, pooling=("cls",))
    with pytest.raises(ConfigError, match=r"model\.pooling was \['cls'\], is \['mean'\]"):
        pooled.encode_dataset(source, tmp_path / "pooled/", workers=2)


def test_each_worker_has_a_gpu_or_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker_devices("cuda", 2) == ["cuda:0", "cuda:1"]
    assert worker_devices("cpu", 3) == ["cpu"] * 3
    with pytest.raises(InputError, match="3 workers need a CUDA device each, and there are 2"):
        worker_devices("cuda", 3)


@pytest.mark.slow
def test_no_worker_outlives_a_killed_run(
    tiny_directory: Path, source: Path, tmp_path: Path
) -> None:
    command = ["embed", str(source), "-o", f"{tmp_path}/out/", "-m", str(tiny_directory)]
    process = subprocess.Popen(
        [sys.executable, "-m", "encoder_engine.cli", *command, "--workers", "2"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    children: list[int] = []
    while len(children) < 2 and process.poll() is None and time.monotonic() < deadline:
        children = [pid for pid in _children(process.pid) if b"spawn_main" in _command(pid)]
        time.sleep(0.01)
    assert len(children) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(b"spawn_main" in _command(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                status = Path(entry.path, "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("device", "entered"), [("cuda:1", ["cuda:1"]), ("cpu", [])])
def test_a_workers_gpu_is_the_current_one(
    device: str, entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    make_current(device)
    assert devices == entered


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
