"""A small model with random weights, and the data that reference numbers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import encoder_engine as ee
from encoder_engine.analysis.subject import Subject
from encoder_engine.families.config import spec_from_config
from tests.cli.conftest import Result, Run, model, run
from tests.finetuning.tiny import WORDS, write_checkpoint
from tests.text.formats.test_library import make_roberta

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Result", "Run", "encoder_of", "model", "run", "subject_of"]


def encoder_of(
    vocab_size: int, *, width: int = 16, layers: int = 1, heads: int = 2, positions: int = 64
) -> ee.Encoder:
    """Return a BERT of random weights."""
    config = {
        "model_type": "bert",
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": width,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
    }
    torch.manual_seed(0)
    return ee.Encoder(spec_from_config(config), config=config).eval()


def subject_of(tokenizer: ee.Tokenizer) -> Subject:
    """Return an encoder of random weights with a tokenizer's vocabulary."""
    encoder = encoder_of(tokenizer.vocab_size)
    return Subject(encoder=encoder, tokenizer=tokenizer, max_length=64)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a small encoder with random weights once; nobody changes it."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def subject(tiny: Path) -> Subject:
    """Load the small encoder."""
    return Subject.from_pretrained(tiny, "cpu")


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Make a small encoder whose byte-level tokens hold the space before a word."""
    texts = ["the film ( good ) , \u201c bad \u201d plot . not"] * 20
    path = make_roberta(tmp_path_factory.mktemp("byte_level"), corpus=texts)
    return subject_of(ee.Tokenizer.from_pretrained(path))


@pytest.fixture(scope="session")
def conllu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sentences whose tags follow from their words, in CoNLL-U."""
    path = tmp_path_factory.mktemp("conllu") / "small.conllu"
    lines = []
    for number in range(40):
        words = [WORDS[(number * 3 + place * place) % len(WORDS)] for place in range(6)]
        for place, word in enumerate(words):
            tag = "DET" if word in {"a", "the"} else "NOUN" if word in {"film", "plot"} else "ADJ"
            head = 0 if place == 0 else place
            relation = "root" if place == 0 else "det" if tag == "DET" else "dep"
            lines.append(f"{place + 1}\t{word}\t{word}\t{tag}\t_\t_\t{head}\t{relation}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return path
