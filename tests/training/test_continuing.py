"""A run goes on from a checkpoint, or follows one, whatever spare places its table has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from encoder_engine import Tokenizer
from encoder_engine.data.prepare import Text, prepare
from encoder_engine.data.shards import Corpus
from encoder_engine.errors import ConfigError
from encoder_engine.models.heads import MaskedLM
from encoder_engine.text.training.extend_vocabulary import with_tokens
from encoder_engine.training import Trainer
from encoder_engine.training.pretraining.continued_pretraining import extend_vocabulary
from tests.training.runs import CONFIG, run, small_recipe

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["the", "cat", "sat", "on", "a", "mat", "##s", "dog", "ran", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_texts(directory: Path, tokenizer: Tokenizer) -> Path:
    """Prepare sentences of few words."""
    generator = np.random.default_rng(0)
    words = ["the", "cat", "cats", "sat", "on", "a", "mat", "dogs", "ran"]
    texts = [Text(" ".join(generator.choice(words, 8)) + ".") for _ in range(300)]
    prepare(texts, tokenizer, directory, source="drawn")
    return directory


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    return write_texts(folder / "corpus", Tokenizer.from_pretrained(folder / "vocab.txt"))


@pytest.fixture(scope="module")
def model(spoken: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    run(spoken, folder, "run.steps=40", "run.deterministic=false")
    return folder / "model"


def pad_table(model: Path, directory: Path, number: int) -> Path:
    """Save a model whose table has places to spare, whose rows would be seen."""
    padded = MaskedLM.from_pretrained(model, device="cpu")
    first = padded.encoder.spec.embedding.vocab_size
    extend_vocabulary(padded.encoder, [[]] * number, first=first)
    bias: torch.Tensor = padded.head.output.bias
    padded.head.output.bias = nn.Parameter(torch.cat([bias.detach(), torch.full((number,), 9.0)]))
    padded.save_pretrained(directory)
    Tokenizer.from_pretrained(model).save(directory)
    return directory


# The biases of spare places are far off on purpose.
@pytest.mark.filterwarnings("ignore:the loss on held-out text")
def test_new_words_take_the_spare_places_of_a_table_first(
    spoken: Path, model: Path, tmp_path: Path
) -> None:
    first = Corpus.open(spoken).vocabulary.size
    unpadded = MaskedLM.from_pretrained(model, device="cpu")
    before = unpadded.encoder.embedding.tokens.weight.detach()
    tokenizer = Tokenizer.from_pretrained(model)
    settings = {"checkpoint": str(pad_table(model, tmp_path / "padded", 3))}
    for number, words in enumerate(([], ["dogmat"], ["dogmat", "catmat", "ranch", "matran"])):
        grown = with_tokens(tokenizer, words) if words else tokenizer
        corpus = write_texts(tmp_path / f"corpus{number}", grown)
        recipe = small_recipe(corpus, "run.steps=1", "run.evaluate_every=1")
        recipe = type(recipe)(
            **{**vars(recipe), "model": type(recipe.model)(checkpoint=settings["checkpoint"])}
        )
        trainer = Trainer(recipe, tmp_path / f"run{number}")
        table = trainer.model.encoder.embedding.tokens.weight.detach()
        assert len(table) == first + max(3, len(words))
        assert torch.equal(table[:first], before)
        for place, word in enumerate(words):
            pieces = tokenizer.encode(word, add_special_tokens=False).tolist()
            torch.testing.assert_close(table[first + place], before[pieces].mean(0))
        trainer.run()


def test_a_teachers_spare_places_are_cut_off(spoken: Path, model: Path, tmp_path: Path) -> None:
    padded = pad_table(model, tmp_path / "padded", 3)
    settings = ["model.config.num_hidden_layers=1", "run.steps=3", "run.deterministic=false"]
    run(spoken, tmp_path / "plain", *settings, f"objectives.teacher={model}")
    run(spoken, tmp_path / "spare", *settings, f"objectives.teacher={padded}")
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("plain", "spare")]
    assert logs[0] == logs[1]


def test_a_teacher_who_does_not_know_all_tokens_is_refused(model: Path, tmp_path: Path) -> None:
    padded = pad_table(model, tmp_path / "padded", 2)
    grown = with_tokens(Tokenizer.from_pretrained(model), ["dogmat", "catmat"])
    corpus = write_texts(tmp_path / "corpus", grown)
    recipe = small_recipe(corpus, f"objectives.teacher={padded}")
    with pytest.raises(ConfigError, match="2 tokens that the checkpoint does not know"):
        Trainer(recipe, tmp_path / "run")


def test_a_student_learns_from_a_teacher_in_a_run(
    spoken: Path, model: Path, tmp_path: Path
) -> None:
    settings = [f"objectives.teacher={model}", "model.config.num_hidden_layers=1", "run.steps=30"]
    settings += ["run.checkpoint_every=10", "run.deterministic=false"]
    assert CONFIG["num_hidden_layers"] == 2
    records: list[dict[str, Any]] = []
    trainer = Trainer(small_recipe(spoken, *settings), tmp_path / "whole")
    teacher = [p.clone() for p in trainer.model.teacher.parameters()]  # type: ignore[union-attr]
    trainer.run(lambda progress: records.append(progress.record))
    assert set(records[0]["losses"]) == {"soft", "mlm", "cosine"}
    assert np.mean([record["loss"] for record in records[-5:]]) < records[0]["loss"]
    kept = trainer.model.teacher.parameters()  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(teacher, kept, strict=True))
    run(spoken, tmp_path / "broken", *settings, stop_at=14)
    run(spoken, tmp_path / "broken", *settings)
    for name in ("log.jsonl", "model/model.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
