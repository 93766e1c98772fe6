"""Predict a large file, killed at random moments; the result must be that of an undisturbed run.

``python -m tests.prediction.kill_long --rows 1000000 --kills 5``: prints what was done, and fails
where a byte differs or where memory grows with the rows.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import encoder_engine as ee
from tests.embedding.kill_long import contents
from tests.prediction.published import publish

# Of a run's peak, beyond that of a tenth of the rows: buffers and the allocator's slack.
SLACK = 1.25


def run(model: Path, data: Path, folder: Path, kill_after: float | None = None) -> tuple[int, int]:
    """Predict in a child process; return minus the signal or 0, and the peak memory in KiB."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            classifier = ee.Classifier.from_pretrained(model, "cpu", num_threads=1)
            classifier.predict_dataset(data, folder, column="text", id_column="id")
            code = 0
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss


def write_rows(path: Path, num_rows: int) -> Path:
    """Write texts of different lengths."""
    with path.open("w", encoding="utf-8") as file:
        for row in range(num_rows):
            file.write(f'{{"id": "{row}", "text": "{"a b " * (row % 7)}{row % 1000}"}}\n')
    return path


def main() -> None:
    """Run once undisturbed, and once with kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        model = home / "model"
        model.mkdir()
        publish(model, "bert", "BertForSequenceClassification", ["no", "yes"])
        few = write_rows(home / "few.jsonl", options.rows // 10)
        rows = write_rows(home / "rows.jsonl", options.rows)
        code, small = run(model, few, home / "few")
        assert code == 0
        start = time.perf_counter()
        code, large = run(model, rows, home / "whole")
        seconds = time.perf_counter() - start
        assert code == 0
        hits = 0
        while hits < options.kills:
            after = chance.uniform(0.1, 0.9) * seconds / 2
            hits += run(model, rows, home / "killed", after)[0] == -signal.SIGKILL
        assert run(model, rows, home / "killed")[0] == 0
        assert contents(home / "killed") == contents(home / "whole"), "a byte differs"
        print(
            f"{options.rows} rows in {seconds:.0f} s, {hits} kills, the same bytes; peak memory "
            f"{large / 1024:.0f} MiB, of a tenth of the rows {small / 1024:.0f} MiB"
        )
        assert large < small * SLACK, "memory grows with the rows"


if __name__ == "__main__":
    main()
