"""Runs that would end well for nothing are warned of; what cannot run says why."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

import encoder_engine as ee
from encoder_engine.data.prepare import Text, prepare
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    DivergedWarning,
    ResumeError,
    SmallCorpusWarning,
    UnsupportedFeatureError,
)
from encoder_engine.training import Trainer
from encoder_engine.training.pretraining.plausibility import warn_of_divergence
from encoder_engine.training.pretraining.recipe_reader import find_recipe
from tests.training.runs import draw_corpus, run, small_recipe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_corpus(tmp_path_factory.mktemp("plausible") / "corpus")


def test_a_corpus_that_is_read_again_and_again_is_warned_of(corpus: Path, tmp_path: Path) -> None:
    """A corpus of two tokens trained to a loss of 0, and nothing was said."""
    with pytest.warns(SmallCorpusWarning, match=r"steps read \d+ times over"):
        Trainer(small_recipe(corpus, "run.steps=100000"), tmp_path / "run")
    Trainer(small_recipe(corpus), tmp_path / "run")


def test_a_loss_far_above_guessing_is_warned_of(corpus: Path, tmp_path: Path) -> None:
    settings = ("optimizer.learning_rate=100", "optimizer.clip_norm=null")
    with pytest.warns(DivergedWarning, match="guessing has"):
        run(corpus, tmp_path / "run", *settings)
    with pytest.warns(DivergedWarning, match="held-out text is nan, guessing has"):
        warn_of_divergence({"mlm_loss": math.nan}, vocab_size=1000)
    warn_of_divergence({"mlm_loss": 7.0}, vocab_size=1000)


def test_a_device_that_is_not_there_is_refused(corpus: Path, tmp_path: Path) -> None:
    absent = "mps" if torch.cuda.is_available() else "cuda"
    for device in (absent, "cuda:99", "abacus"):
        with pytest.raises(ConfigError, match=f"device '{device}"):
            Trainer(small_recipe(corpus, f"run.device={device}"), tmp_path / "run")


def test_a_finished_run_says_how_it_is_trained_further(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "run", "run.steps=2")
    with pytest.raises(
        ResumeError, match=r"run\.steps was 2, is 3; .* start a new run from the model .*model$"
    ):
        run(corpus, tmp_path / "run", "run.steps=3")
    with pytest.raises(ResumeError) as caught:
        run(corpus, tmp_path / "run", "run.steps=3", "run.seed=1")
    assert "further" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.max_length=64", "model.config.max_position_embeddings=64", "batch.tokens=32",
          "batch.micro_tokens=32"], r"raise batch\.micro_tokens to at least \d+, or lower data"),
        (["model.config.type_vocab_size=null"], r"model\.config of the recipe: .*type_vocab_size"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_named(
    corpus: Path, tmp_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(small_recipe(corpus, *settings), tmp_path / "run")


def test_an_error_in_a_recipes_own_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def recipe():\n    return undefined.steps\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.py, line 2: NameError: name 'undefined'"):
        find_recipe(f"{path}:recipe")
    (tmp_path / "mine.yaml").write_text("data: {corpus: here}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"recipe\.model must be an object, but is missing"):
        find_recipe(str(tmp_path / "mine.yaml"))


@pytest.fixture
def sentence_model(minilm: Path, tmp_path: Path) -> Path:
    """Copy all-MiniLM-L6-v2, a sentence-transformers model."""
    directory = tmp_path / "minilm"
    shutil.copytree(minilm, directory)
    return directory


@pytest.mark.filterwarnings("ignore:only the encoder was loaded")
def test_a_sentence_model_that_is_gone_on_from_keeps_pooling_and_normalisation(
    sentence_model: Path, tmp_path: Path
) -> None:
    texts = [Text(f"The cat number {n} sat on the mat and slept until noon.") for n in range(80)]
    tokenizer = ee.Tokenizer.from_pretrained(sentence_model)
    prepare(texts, tokenizer, tmp_path / "corpus", source="made")
    settings = [f"data.corpus={tmp_path / 'corpus'}", "run.steps=1", "data.max_length=16"]
    settings += ["batch.tokens=32", "batch.micro_tokens=32", "run.evaluation_tokens=64"]
    recipe = find_recipe("tiny", settings, checkpoint=str(sentence_model))
    Trainer(recipe, tmp_path / "run").run()
    model = tmp_path / "run" / "model"
    before, after = (ee.Embedder.from_pretrained(path) for path in (sentence_model, model))
    assert after.recipe == before.recipe.__class__(
        **{**vars(before.recipe), "encoder_directory": after.recipe.encoder_directory}
    )
    vectors = after.encode(["A cat.", "A much longer text about a dog."])
    torch.testing.assert_close(torch.from_numpy(vectors).norm(dim=1), torch.ones(2))


def test_an_adapter_is_never_left_out(sentence_model: Path) -> None:
    """The library peft applies the adapter; loading without it gave other vectors in silence."""
    adapter: dict[str, Any] = {"peft_type": "LORA", "r": 8, "target_modules": ["query"]}
    path = sentence_model / "adapter_config.json"
    for kind, error, words in (
        ("LORA", CheckpointFileError, r"no weights of an adapter"),
        ("IA3", UnsupportedFeatureError, r"adapter of type IA3.*merge_and_unload"),
    ):
        path.write_text(json.dumps(adapter | {"peft_type": kind}), encoding="utf-8")
        for load in (ee.Encoder.from_pretrained, ee.Embedder.from_pretrained):
            with pytest.raises(error, match=words):
                load(sentence_model)
    ee.Tokenizer.from_pretrained(sentence_model)
