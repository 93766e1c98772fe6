"""Draws labelled rows of every task from a few words, and checkpoints that all tasks begin with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import encoder_engine as ee
from encoder_engine.models.heads import MaskedLM
from tests.finetuning.tiny import WORDS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw_row", "write_masked_lm", "write_task_rows"]


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
