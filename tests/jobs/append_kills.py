"""Kill appending runs: the folder is as before or as after, byte for byte.

``python -m tests.jobs.append_kills --kills 200 --seed 0``: random moments and every
change of the disk, for each format. Every run is a child of a process that has loaded the model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from encoder_engine.embedding import Embedder, load_vectors
from encoder_engine.locks import LOCK_NAME
from tests.embedding.kill_long import MEMORY, _kill_at, contents
from tests.embedding.tiny_model import write_sentence_directory


def state(folder: Path) -> dict[str, bytes]:
    """Return the bytes of a folder's files, without the lock that a kill leaves."""
    found = contents(folder)
    found.pop(LOCK_NAME, None)
    return found


class Appends:
    """One store before and after an append that adds, replaces and drops rows."""

    def __init__(self, home: Path, shard_format: str, num_rows: int, workers: int) -> None:
        self.home, self._format, self._workers = home, shard_format, workers
        self._embedder = Embedder.from_pretrained(
            write_sentence_directory(home / "model"), device="cpu", num_threads=1
        )
        self._inputs = home / "in"
        self._inputs.mkdir()
        self._write("a.jsonl", range(num_rows), "text")
        self._write("b.jsonl", range(num_rows, num_rows + 50), "text")
        self.folder = home / "store"
        assert self._append() == 0
        self.former = home / "former"
        shutil.copytree(self.folder, self.former)
        self._write("a.jsonl", range(10, num_rows), "text")
        self._write("b.jsonl", range(num_rows, num_rows + 40), "another text")
        self._write("c.jsonl", range(num_rows + 60, num_rows + 300), "text")
        start = time.perf_counter()
        assert self._append() == 0
        self.seconds = time.perf_counter() - start
        self.before, self.after = state(self.former), state(self.folder)
        assert self.before != self.after

    def _write(self, name: str, rows: range, word: str) -> None:
        lines = [json.dumps({"id": f"row-{row}", "text": f"{word} {row}"}) for row in rows]
        (self._inputs / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _append(self, kill_after: float | None = None, kill_at: int | None = None) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if kill_at is not None:
                    _kill_at(kill_at)
                self._embedder.encode_dataset(
                    self._inputs,
                    self.folder,
                    id_column="id",
                    shard_rows=100,
                    shard_format=self._format,  # type: ignore[arg-type]
                    append=True,
                    delete_missing=True,
                    workers=self._workers,
                )
                code = 0
            finally:
                os._exit(code)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def restore(self) -> None:
        """Put the store back to what it was before the append."""
        for path in self.home.glob("*store*"):
            shutil.rmtree(path)
        shutil.copytree(self.former, self.folder)

    def check(self) -> bool:
        """Compare with before and after; return whether it is as after."""
        found = state(self.folder)
        assert found in (self.before, self.after)
        load_vectors(self.folder).vectors  # noqa: B018 - compares every file with its checksum
        return found == self.after

    def kill(self, *, after: float | None = None, at: int | None = None) -> int:
        """Append and kill; go on until the end. Return the number of kills that hit."""
        code = self._append(kill_after=after, kill_at=at)
        self.check()
        assert code in (0, -signal.SIGKILL)
        assert self._append() == 0
        assert self.check()
        assert [path.name for path in self.home.glob("*store*")] == ["store"]
        return int(code != 0)


def main() -> None:
    """Do what the command line asks, and print a line of JSON for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="kill at each n-th change of the disk")
    parser.add_argument("--format", nargs="+", default=["npy", "parquet"])
    arguments = parser.parse_args()
    for shard_format in arguments.format:
        chance, kills, changes = random.Random(arguments.seed), 0, 0
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as home:
            runs = Appends(Path(home), shard_format, arguments.rows, arguments.workers)
            while kills < arguments.kills:
                runs.restore()
                kills += runs.kill(after=chance.random() * runs.seconds)
            for number in range(1, 10_000, arguments.every):
                runs.restore()
                if not runs.kill(at=number):
                    break
                changes += 1
        print(json.dumps({"format": shard_format, "kills": kills, "kills_at_changes": changes}))


if __name__ == "__main__":
    main()
