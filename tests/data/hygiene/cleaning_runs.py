"""Runs of cleaning over drawn records, which a process may make without pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.data.hygiene.cleaning import CleanCounts, Cleaner, CleanSettings
from encoder_engine.data.hygiene.run import CleanJob, clean_rows
from encoder_engine.inputs.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS, WINDOW = 300, 64
FILES = ("out.jsonl", "dropped.jsonl", "sha256")


def draw_records() -> list[Record]:
    """Draw texts of few words, of which many are exact, near or semantic duplicates."""
    generator = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(60)])
    records: list[Record] = []
    for row in range(NUM_ROWS):
        chosen = words[generator.integers(0, 60, 12)].tolist()
        if row and generator.random() < 0.5:
            chosen = str(records[generator.integers(row)].values["text"]).split()
            if generator.random() < 0.7:
                chosen[generator.integers(len(chosen))] = str(generator.choice(words))
        text = " ".join(chosen) + (" mail a@example.org" if row % 50 == 7 else "")
        records.append(Record({"text": text, "number": row}, row=row))
    return records


def encode(texts: list[str]) -> Any:
    """Count the words of texts, one feature for each, float32 [n, 60]."""
    counts = np.zeros((len(texts), 60), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            if word.startswith("word"):
                counts[row, int(word.removeprefix("word"))] += 1
    return counts


def job(folder: Path, **changes: Any) -> CleanJob:
    given = {
        "output": folder / "out.jsonl",
        "dropped": folder / "dropped.jsonl",
        "column": "text",
        "begun": {"inputs": ["x"], "settings": {"near": 0.5}},
    }
    return CleanJob(**{**given, **changes})


def clean(
    folder: Path,
    watch: Callable[[CleanCounts], None] = lambda _: None,
    finish: Callable[[str], None] | None = None,
    records: list[Record] | None = None,
    **changes: Any,
) -> CleanCounts:
    """Clean the drawn records, or others; a file ``sha256`` takes the place of the manifest."""

    def write(sha256: str) -> None:
        (folder / "sha256").write_text(sha256)

    cleaner = Cleaner(CleanSettings(near=0.5, shingle_size=2, semantic=0.9), encode=encode)
    given = job(folder, **changes)
    clean_rows(records or draw_records(), cleaner, given, finish=finish or write, watch=watch)
    return cleaner.counts
