"""Kill runs at random moments and at every change of the disk; their outputs must be identical.

``python -m tests.embedding.kill_long --kills 200``: prints what was done, and fails where a byte
differs from an undisturbed run. Every run is a child of a process that has loaded the model, so a
kill costs milliseconds. ``--elastic``: shards end by the clock, so rows and ids are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding import Embedder, load_vectors
from encoder_engine.errors import OutputError
from encoder_engine.jobs import folder as folders
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Callable

# A kill takes nothing back that was written, so memory does as well as a disk, and does not wait.
MEMORY = Path("/dev/shm")
FULL = 7
# What changes a directory, or begins to write a file; raised before it is done.
_CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "open"}


class Runs:
    """Runs of one job, each in a child process of its own, into folders of this one's choice."""

    def __init__(
        self, home: Path, shard_format: str, num_rows: int, *, elastic: bool = False
    ) -> None:
        self.home, self.shard_format = home, shard_format
        self._embedder = Embedder.from_pretrained(
            # A forked child has no other threads.
            write_sentence_directory(home / "model"),
            device="cpu",
            num_threads=1,
        )
        self._shard_rows = None if elastic else num_rows // 2
        self._input = home / "texts.jsonl"
        lines = [
            json.dumps({"id": f"row-{row}", "text": None if row % 97 == 5 else f"text {row}"})
            for row in range(num_rows)
        ]
        self._input.write_text("\n".join(lines), encoding="utf-8")
        start = time.perf_counter()
        assert self.run(home / "whole") == 0
        self.seconds = time.perf_counter() - start
        self.truth = contents(home / "whole")

    def run(
        self,
        folder: Path,
        *,
        kill_after: float | None = None,
        prepare: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> int:
        """Run until the end or the kill; return the exit code, or minus the signal."""
        child = os.fork()
        if child == 0:
            self._child(folder, prepare, options)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _child(self, folder: Path, prepare: Callable[[], None], changed: dict[str, Any]) -> None:
        code = 1
        try:
            if self._shard_rows is None:
                folders.SHARD_SECONDS = 0.0
            prepare()
            options = {
                "id_column": "id",
                "on_error": "skip",
                "shard_rows": self._shard_rows,
                "shard_format": self.shard_format,
            }
            self._embedder.encode_dataset(self._input, folder, **(options | changed))
            code = 0
        except OutputError as error:
            print(error, file=sys.stderr)
            code = FULL
        finally:
            os._exit(code)

    def check(self, folder: Path) -> None:
        """Finish the run and compare every byte with the undisturbed one's."""
        code = self.run(folder)
        assert code == 0, f"{folder} could not be finished: {code}"
        self.compare(folder)

    def compare(self, folder: Path) -> None:
        """Compare a finished folder with the undisturbed run's: every byte, or rows and ids."""
        if self._shard_rows is not None:
            same = contents(folder) == self.truth
        else:
            found, truth = load_vectors(folder), load_vectors(self.home / "whole")
            same = found.ids == truth.ids and np.array_equal(found.vectors, truth.vectors)
            left = {"_manifest.json", "_skipped.jsonl"}
            left |= {name for shard in (found.manifest or {})["shards"] for name in shard["files"]}
            same = same and left == set(contents(folder))
        assert same, f"{folder} differs from {self.home / 'whole'}"


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def kill_at_random(runs: Runs, num_kills: int, seed: int, seconds: float) -> int:
    """Kill at random moments, several times a run, until so many kills hit or the time is up."""
    chance, hits, attempt = random.Random(seed), 0, 0
    end = time.monotonic() + seconds
    while hits < num_kills and time.monotonic() < end:
        attempt += 1
        folder = runs.home / f"random-{attempt}"
        for _ in range(chance.randint(1, 6)):
            moment = chance.random() * runs.seconds
            hits += runs.run(folder, kill_after=moment) == -signal.SIGKILL
        runs.check(folder)
    return hits


def kill_at_every_change(runs: Runs) -> int:
    """Kill before the first change of the disk, before the second, and so on to the last."""
    for number in range(1, 10_000):
        folder = runs.home / f"change-{number}"
        code = runs.run(folder, prepare=lambda n=number: _kill_at(n))  # type: ignore[misc]
        if code == 0:
            runs.compare(folder)
            return number - 1
        assert code == -signal.SIGKILL, code
        runs.check(folder)
    raise AssertionError("a run that never ends")


def kill_over_a_file(runs: Runs) -> int:
    """Kill runs that overwrite one file at every change of the disk; the same command goes on."""
    kills = 0
    truth = load_vectors(runs.home / "whole")
    for old, new in (("id", "id"), ("id", None), (None, "id"), (None, None)):
        for number in range(1, 10_000):
            target = runs.home / f"file-{old}-{new}-{number}" / "a.npy"
            target.parent.mkdir()
            file: dict[str, Any] = {"shard_rows": None, "shard_format": None}
            assert runs.run(target, id_column=old, **file) == 0
            file |= {"id_column": new, "overwrite": True}
            code = runs.run(target, prepare=lambda n=number: _kill_at(n), **file)  # type: ignore[misc]
            kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), code
            assert runs.run(target, **file) == 0, f"{target} could not be made again"
            found = load_vectors(target)
            assert np.array_equal(found.vectors, truth.vectors)
            assert found.ids == (truth.ids if new else None)
            if code == 0:
                break
    return kills


def _kill_at(number: int) -> None:
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event not in _CHANGES:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_WRONLY):
            return
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def fill_the_disk(runs: Runs, num_times: int, seed: int) -> int:
    """Let files end early, as on a full disk, at sizes by chance; then go on without a limit."""
    chance, failures = random.Random(seed), 0
    largest = max(map(len, runs.truth.values()))
    for attempt in range(num_times):
        folder = runs.home / f"full-{attempt}"
        limit = chance.randrange(1, largest)
        code = runs.run(folder, prepare=lambda size=limit: _limit_files(size))  # type: ignore[misc]
        assert code in (0, FULL), code
        failures += code == FULL
        assert not list(folder.glob("*.partial")) or code != FULL
        runs.check(folder)
    return failures


def _limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    _say_nothing()


def _say_nothing() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def fill_a_file_system(runs: Runs, num_times: int, seed: int) -> int | str:
    """Run on file systems in memory that are too small, of sizes by chance; then make room.

    Returns how many were filled, or why none can be mounted: that takes the rights of root.
    """
    for program in ("mount", "umount"):
        if shutil.which(program) is None:
            return f"no program {program} is here"
    chance, failures = random.Random(seed), 0
    place = runs.home / "mount"
    place.mkdir()
    needed = sum(map(len, runs.truth.values()))
    for _ in range(num_times):
        # Memory comes in pages, of which a file takes whole ones.
        kib = chance.randrange(8, needed // 1024)
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
        mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
        if mounted.returncode:
            return mounted.stderr.strip() or f"mount ended with {mounted.returncode}"
        try:
            code = runs.run(place / "out", prepare=_say_nothing)
            assert code in (0, FULL), code
            failures += code == FULL
            assert not list((place / "out").glob("*.partial")) or code != FULL
            subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)
            runs.check(place / "out")
        finally:
            subprocess.run(["umount", str(place)], check=True)
    return failures


def main() -> None:
    """Do what the command line asks, and print a line of JSON for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--full", type=int, default=50, help="times that the disk is full")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--elastic", action="store_true", help="shards that end by the clock")
    parser.add_argument("--format", nargs="+", default=["npy", "parquet", "arrow"])
    arguments = parser.parse_args()
    for shard_format in arguments.format:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as home:
            runs = Runs(Path(home), shard_format, arguments.rows, elastic=arguments.elastic)
            result = {
                "format": shard_format,
                "shards": sum(name.startswith("part-") for name in runs.truth),
                "random_kills": kill_at_random(
                    runs, arguments.kills, arguments.seed, arguments.seconds
                ),
                "kills_before_a_change": kill_at_every_change(runs),
                "kills_over_a_file": kill_over_a_file(runs) if shard_format == "npy" else 0,
                "full_disks": fill_the_disk(runs, arguments.full, arguments.seed),
                "full_file_systems": fill_a_file_system(runs, arguments.full, arguments.seed),
            }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
