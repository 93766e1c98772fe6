"""Recipes say what is wrong with them, and those that come along are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine import Encoder
from encoder_engine.errors import ConfigError
from encoder_engine.families.config import spec_from_config
from encoder_engine.training.pretraining.recipe_reader import (
    find_recipe,
    recipe_from_values,
    recipe_to_values,
)
from encoder_engine.training.pretraining.recipes import RECIPES
from encoder_engine.training.recipe import (
    BatchRecipe,
    ScheduleRecipe,
    TrainingRecipe,
)
from encoder_engine.training.schedule import learning_rate_factor
from encoder_engine.training.speed import flops_per_token

if TYPE_CHECKING:
    from pathlib import Path

# Millions of parameters of the encoders, with BERT's vocabulary, as their papers give them.
SIZES = {"tiny": 4.4, "bert_base": 109, "bert_large": 335, "roberta": 109, "electra_small": 13.5}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_comes_back_from_its_values(name: str) -> None:
    recipe = find_recipe(name)
    assert recipe_from_values(recipe_to_values(recipe)) == recipe
    config = {**recipe.model.config, "vocab_size": 30_522, "pad_token_id": 0}
    with torch.device("meta"):
        encoder = Encoder(spec_from_config(config), config=config)
    millions = sum(p.numel() for p in encoder.parameters()) / 1e6
    assert millions == pytest.approx(SIZES.get(name, millions), rel=0.05)
    assert encoder.spec.max_length is not None
    assert recipe.data.max_length <= encoder.spec.max_length


def test_a_bases_training_takes_six_operations_for_each_weight_and_those_of_attention() -> None:
    config = {**find_recipe("bert_base").model.config, "vocab_size": 30_522, "pad_token_id": 0}
    with torch.device("meta"):
        encoder = Encoder(spec_from_config(config), config=config)
    matrices = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    expected = 6 * matrices + 12 * 12 * 512 * 768
    assert flops_per_token([encoder], 512) == expected


def test_a_file_a_function_and_settings_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "model: {checkpoint: here}\nbatch: {tokens: 64, micro_tokens: 32}\n"
        "optimizer: {learning_rate: 1e-3, betas: [0.9, 0.95]}\n"
    )
    (tmp_path / "mine.py").write_text(
        "from encoder_engine.training import *\n"
        "def recipe():\n"
        "    return TrainingRecipe(model=ModelRecipe(checkpoint='here'),\n"
        "        batch=BatchRecipe(tokens=64, micro_tokens=32),\n"
        "        optimizer=OptimizerRecipe(learning_rate=1e-3, betas=(0.9, 0.95)))\n"
    )
    from_file = find_recipe(str(tmp_path / "mine.yaml"))
    assert from_file == find_recipe(f"{tmp_path / 'mine.py'}:recipe")
    changed = find_recipe(str(tmp_path / "mine.yaml"), ["run.steps=7", "data.alpha=0.3"])
    assert (changed.run.steps, changed.data.alpha) == (7, 0.3)
    assert changed.optimizer == from_file.optimizer


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["batch.token=64"], r"recipe\.batch has .* unknown .*: 'token'; did you mean 'tokens'\?"),
        (["bath.tokens=64"], r"recipe has .* unknown .*: 'bath'; did you mean 'batch'\?"),
        (["run.precision=bfloat"], "must be one of float32, bfloat16.*did you mean 'bfloat16'"),
        (["run.steps=many"], r"recipe\.run\.steps must be an integer, got 'many'"),
        (["run.steps=0"], r"run\.steps must be at least 1 and finite, got 0"),
        (["batch.tokens=100"], r"batch\.tokens is 100; it must be a multiple"),
        (["objectives.span_boundary=true"], r"needs objectives\.unit: span"),
        (
            ["objectives.decoder_mask_probability=1.5"],
            r"objectives\.decoder_mask_probability must be from 0 to 1, got 1\.5",
        ),
        (["run.steps"], "is not a setting"),
        (["run.steps=[1"], r"run\.steps=\[1 is no YAML"),
        (
            ["run.evaluation_tokens=0"],
            r"run\.evaluation_tokens must be at least 1 and finite, got 0",
        ),
        (["run.keep_every=0"], r"run\.keep_every must be at least 1 and finite, got 0"),
        (["run.peak_tflops=0"], r"run\.peak_tflops must be above 0 and finite, got 0"),
        (["run.ema=1.0"], r"run\.ema must be at least 0 and below 1, got 1"),
        (["run.seed=-1"], r"run\.seed must be at least 0 and finite, got -1"),
        (["objectives.temperature=0"], r"objectives\.temperature must be above 0"),
        (["objectives.label_smoothing=1"], r"objectives\.label_smoothing must be at least 0"),
        (
            ["objectives.soft_weight=-1"],
            r"objectives\.soft_weight must be at least 0 and finite, got -1",
        ),
        (["optimizer.betas=[0.9, 1]"], r"optimizer\.betas\[1\] must be at least 0 and below 1"),
        (["optimizer.clip_norm=-1"], r"optimizer\.clip_norm must be above 0 and finite, got -1"),
        (["optimizer.learning_rate=.nan"], r"learning_rate must be at least 0 and finite, got nan"),
        (["optimizer.learning_rate=.inf"], r"learning_rate must be at least 0 and finite, got inf"),
        (["objectives.soft_weight=.inf"], r"soft_weight must be at least 0 and finite, got inf"),
        (["batch.warmup=2"], r"batch\.warmup must be from 0 to 1, got 2"),
        (["data.alpha=2"], r"data\.alpha must be from 0 to 1, got 2"),
        (
            ["objectives.label_smoothing=0.1", "objectives.teacher=there"],
            "label_smoothing is for masked language modelling alone",
        ),
    ],
)
def test_what_is_wrong_is_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_recipe("tiny", settings)


def test_a_file_that_says_nothing_or_no_model_is_told_or_mended(tmp_path: Path) -> None:
    empty, modelless = tmp_path / "empty.yaml", tmp_path / "modelless.yaml"
    empty.write_text("")
    modelless.write_text("run: {steps: 5}\n")
    with pytest.raises(ConfigError, match="must be a mapping of sections to values, got None"):
        find_recipe(str(empty), ["run.steps=7"])
    with pytest.raises(ConfigError, match=r"recipe\.model must be an object, but is missing"):
        find_recipe(str(modelless))
    found = find_recipe(str(modelless), corpus="here", checkpoint="there")
    modelless.write_text("data: here\n")
    with pytest.raises(ConfigError, match=r"recipe\.data must be an object, got 'here'"):
        find_recipe(str(modelless), corpus="there", checkpoint="there")
    with pytest.raises(ConfigError, match=r"none\.yaml is missing; look at the name"):
        find_recipe(str(tmp_path / "none.yaml"))
    assert (found.model.checkpoint, found.data.corpus, found.run.steps) == ("there", "here", 5)


def test_a_setting_beside_a_checkpoint_or_a_corpus_counts() -> None:
    """Both were replaced in silence, and all models of a sweep over them were the same."""
    with pytest.raises(ConfigError, match="either a config or a checkpoint"):
        find_recipe("tiny", ["model.config.hidden_size=64"], checkpoint="there")
    assert find_recipe("tiny", ["data.corpus=other"], corpus="here").data.corpus == "other"
    assert find_recipe("tiny", ["data.max_length=9"], corpus="here").data.corpus == "here"


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no recipe 'bert-base'; did you mean 'bert_base'"):
        find_recipe("bert-base")


def test_schedules_rise_fall_and_end_where_they_should() -> None:
    linear = ScheduleRecipe(name="linear", warmup=0.1)
    factors = [learning_rate_factor(linear, step, 100) for step in range(100)]
    assert factors[0] == pytest.approx(1 / 11)
    assert max(factors) == factors[10] == 1.0
    assert factors[55] == pytest.approx(0.5)
    assert factors[99] == pytest.approx(1 / 90)
    cosine = ScheduleRecipe(name="cosine", warmup=0.0, final=0.1)
    assert learning_rate_factor(cosine, 50, 100) == pytest.approx(0.55)
    stable = ScheduleRecipe(name="stable", warmup=0.1, decay=0.2)
    assert {learning_rate_factor(stable, step, 100) for step in range(10, 81)} == {1.0}
    assert learning_rate_factor(stable, 85, 100) == pytest.approx(0.5)


def test_a_batch_grows_to_its_size() -> None:
    batch = BatchRecipe(tokens=800, micro_tokens=100, first_tokens=200, warmup=0.5)
    counts = [batch.num_micro_batches(step, 20) for step in range(20)]
    assert counts[:10] == [2, 2, 3, 3, 4, 5, 5, 6, 6, 7]
    assert set(counts[10:]) == {8}


def test_a_recipe_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="either a config or a checkpoint"):
        recipe_from_values({"model": {}})
    with pytest.raises(ConfigError, match=r"recipe\.model must be an object, but is missing"):
        recipe_from_values({})
    assert TrainingRecipe.__doc__
