"""A small model with random weights, and the data that reference numbers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from encoder_engine.analysis.subject import Subject
from tests.cli.conftest import Result, Run, model, run
from tests.finetuning.tiny import WORDS, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Result", "Run", "model", "run"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a small encoder with random weights once; nobody changes it."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def subject(tiny: Path) -> Subject:
    """Load the small encoder."""
    return Subject.from_pretrained(tiny, "cpu")


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
