"""A checkpoint and labelled rows that a CPU fine-tunes in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import torch

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]


def write_checkpoint(folder: Path) -> Path:
    """Save an encoder of 2 layers with random weights, and its vocabulary."""
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = {
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
    }
    torch.manual_seed(0)
    ee.Encoder(spec_from_config(config), config=config).save_pretrained(folder)
    ee.Tokenizer.from_pretrained(folder / "vocab.txt", lowercase=True).save(folder)
    return folder


def write_rows(path: Path, *, num_rows: int, seed: int) -> Path:
    """Write texts that are positive where they have the word good."""
    generator = np.random.default_rng(seed)
    lines = []
    for number in range(num_rows):
        words = generator.choice(WORDS[2:], size=6).tolist()
        words[int(generator.integers(6))] = WORDS[number % 2]
        lines.append(json.dumps({"text": " ".join(words), "label": ["yes", "no"][number % 2]}))
    path.write_text("\n".join(lines) + "\n")
    return path
