"""Models of words, spans and questions are tuned by the verb and predict by their own classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.errors import ConfigError, InputError
from tests.finetuning.tiny import WORDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning"),
]


def write_sentences(path: Path, *, num_rows: int, seed: int) -> Path:
    """Write sentences in which a film or a plot is an entity."""
    generator = np.random.default_rng(seed)
    blocks = []
    for _ in range(num_rows):
        words = generator.choice(WORDS, size=6).tolist()
        words[int(generator.integers(6))] = "film"
        lines = [f"{word} {'B-THING' if word in ('film', 'plot') else 'O'}" for word in words]
        blocks.append("\n".join(lines) + "\n")
    path.write_text("\n".join(blocks))
    return path


def write_questions(path: Path, *, num_rows: int, seed: int) -> Path:
    """Write questions whose answer is the word film in the context."""
    generator = np.random.default_rng(seed)
    questions = []
    for number in range(num_rows):
        words = generator.choice([w for w in WORDS if w != "film"], size=8).tolist()
        words[int(generator.integers(8))] = "film"
        context = " ".join(words)
        answer = {"text": "film", "answer_start": context.index("film")}
        question = {"id": str(number), "question": "good the", "answers": [answer]}
        questions.append({"context": context, "qas": [question]})
    data = {"version": "1.1", "data": [{"title": "all", "paragraphs": questions}]}
    path.write_text(json.dumps(data))
    return path


def tune(task: str, checkpoint: Path, train: Path, dev: Path, output: Path, *more: str) -> None:
    settings = ["run.device=cpu", "run.epochs=8", "batch.examples=8", "report.samples=20", *more]
    settings.append("optimizer.learning_rate=5e-3")
    given = [part for setting in settings for part in ("--set", setting)]
    files = ["--train", str(train), "--dev", str(dev), "--output", str(output)]
    assert main(["finetune", task, "--model", str(checkpoint), *files, *given, "-q"]) == 0


SENTENCES = [["a", "good", "film"], ["the", "very", "bad", "plot", "not"]]


@pytest.mark.parametrize("decoding", ["argmax", "crf"])
def test_a_tagger_finds_the_words_that_it_learned(
    checkpoint: Path, tmp_path: Path, decoding: str
) -> None:
    train = write_sentences(tmp_path / "train.conll", num_rows=60, seed=0)
    dev = write_sentences(tmp_path / "dev.conll", num_rows=20, seed=1)
    run = tmp_path / "run"
    tune("token-classification", checkpoint, train, dev, run, f"task.decoding={decoding}")
    tagger = ee.Tagger.from_pretrained(run, "cpu")
    tags = [found.tags for found in tagger.predict(SENTENCES)]
    assert tags == [("O", "O", "B-THING"), ("O", "O", "O", "B-THING", "O")]
    with pytest.raises(InputError, match="give a list of words for each sentence"):
        tagger.predict(["a good film"])
    with pytest.raises(ConfigError, match="a model for token-classification"):
        ee.Reader.from_pretrained(run, "cpu")


def test_a_span_tagger_finds_spans(checkpoint: Path, tmp_path: Path) -> None:
    train = write_sentences(tmp_path / "train.conll", num_rows=60, seed=0)
    dev = write_sentences(tmp_path / "dev.conll", num_rows=20, seed=1)
    tune("span-classification", checkpoint, train, dev, tmp_path / "run")
    tagger = ee.SpanTagger.from_pretrained(tmp_path / "run", "cpu")
    found = [[tuple(span)[:3] for span in one.spans] for one in tagger.predict(SENTENCES)]
    assert found == [[(2, 3, "THING")], [(3, 4, "THING")]]


def test_a_reader_finds_answers(checkpoint: Path, tmp_path: Path) -> None:
    train = write_questions(tmp_path / "train.json", num_rows=80, seed=0)
    dev = write_questions(tmp_path / "dev.json", num_rows=20, seed=1)
    tune("question-answering", checkpoint, train, dev, tmp_path / "run")
    reader = ee.Reader.from_pretrained(tmp_path / "run", "cpu")
    context = "very bad plot not a film the"
    found: Any = reader.predict([("good the", context)])[0]
    assert found.text == "film"
    assert context[found.start : found.stop] == "film"
    with pytest.raises(InputError, match="a pair of a question and its context"):
        reader.predict(["a question"])  # type: ignore[list-item]
