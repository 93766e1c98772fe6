"""A small checkpoint to fine-tune."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Save a small encoder with random weights and a vocabulary."""
    folder = tmp_path / "checkpoint"
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
    tokenizer = ee.Tokenizer.from_pretrained(folder / "vocab.txt", lowercase=True)
    tokenizer.save(folder)
    return folder
