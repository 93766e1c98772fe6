"""Draws labelled rows of every task from a few words, and checkpoints that all tasks begin with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import encoder_engine as ee
from encoder_engine.inputs.tables import read_table
from encoder_engine.models.heads import MaskedLM
from encoder_engine.tasks.registry import task_from_values
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.task_folder import SavedTask, save_task
from tests.finetuning.tiny import WORDS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TASK_CASES", "draw_row", "write_masked_lm", "write_task_model", "write_task_rows"]

# Every task, by the settings that change what a model computes.
TASK_CASES: list[tuple[str, dict[str, Any]]] = [
    ("sequence-classification", {}),
    ("regression", {}),
    ("token-classification", {"decoding": "argmax"}),
    ("token-classification", {"decoding": "crf", "scheme": "bio"}),
    ("token-classification", {"subwords": "all", "pooling": "mean"}),
    ("span-classification", {"summary": "mean", "hidden": 16, "max_width": 3}),
    ("span-classification", {"summary": "attention", "hidden": 16, "max_width": 3}),
    ("question-answering", {}),
    ("multiple-choice", {}),
    ("ranking", {}),
    ("embedding", {}),
    ("late-interaction", {"dimension": 8}),
    ("late-interaction", {"dimension": 8, "expand_queries": True, "query_length": 12}),
    ("sparse", {}),
]


def draw_row(task: str, number: int, generator: np.random.Generator) -> dict[str, Any]:
    """Draw a row of 3 to 20 words; what is to be learned depends on the words good and film."""
    words = generator.choice(WORDS, size=int(generator.integers(3, 20))).tolist()
    words[0] = ["good", "bad"][number % 2]
    text = " ".join(words)
    if task in ("token-classification", "span-classification"):
        words[1] = "film"
        return {"words": words, "tags": ["B-X" if word == "film" else "O" for word in words]}
    if task == "question-answering":
        answers = {"text": [words[1]], "answer_start": [len(words[0]) + 1]}
        return {"id": str(number), "question": "not", "context": text, "answers": answers}
    if task == "multiple-choice":
        endings = ["film", "bad plot", "very not the"][: 2 + number % 2]
        return {"context": text, "endings": endings, "label": number % 2}
    if task in ("ranking", "embedding", "late-interaction", "sparse"):
        return {"query": " ".join(words[:2]), "positive": text, "negatives": ["the very plot"]}
    return {"text": text, "label": number % 2, "score": float(words.count("good"))}


def write_task_rows(path: Path, task: str, *, num_rows: int, seed: int) -> Path:
    """Write rows of a task as .jsonl."""
    generator = np.random.default_rng(seed)
    rows = [draw_row(task, number, generator) for number in range(num_rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_masked_lm(checkpoint: Path) -> Path:
    """Save a checkpoint again beside it, with a random head for masked tokens."""
    folder = checkpoint.with_name("masked-lm")
    torch.manual_seed(0)
    MaskedLM(ee.Encoder.from_pretrained(checkpoint, device="cpu")).save_pretrained(folder)
    ee.Tokenizer.from_pretrained(checkpoint).save(folder)
    return folder


def write_task_model(
    folder: Path, checkpoint: Path, task: str, settings: dict[str, Any] | None = None
) -> Path:
    """Save a task's model with random weights in all layers, and ``rows.jsonl`` beside it."""
    folder.mkdir()
    rows = write_task_rows(folder / "rows.jsonl", task, num_rows=24, seed=1)
    made = task_from_values(task, settings or {}).of_checkpoint(checkpoint)
    made = made.fit([made.read(record) for record in read_table(rows)])
    torch.manual_seed(3)
    model = made.make_model(ee.Encoder.from_pretrained(checkpoint, device="cpu"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    made.own_tokenizer(ee.Tokenizer.from_pretrained(checkpoint)).save(folder)
    save_task(folder, SavedTask(made, Windows(max_length=16)))
    return folder
