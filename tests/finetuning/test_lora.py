"""Low-rank adapters learn as peft's on transformers' models, and are saved with their head."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import encoder_engine as ee
from encoder_engine.errors import ConfigError, UnsupportedFeatureError, UnusedWeightsWarning
from encoder_engine.finetuning.course import FineTuning
from encoder_engine.finetuning.data import prepare_data
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.models.lora.adapters import adapted_layers
from encoder_engine.models.lora.saving import save_adapter
from encoder_engine.opening.compiling import compile_directory
from encoder_engine.ops.testing import assert_within_budget, floor, largest
from encoder_engine.prediction.predictor import Predictor

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.finetuning.recipe import FineTuningRecipe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64
RANK = 3
TARGETS = ["query", "value", "dense"]
WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]


def make_recipe(checkpoint: Path | str, folder: Path, *settings: str) -> FineTuningRecipe:
    rng = np.random.default_rng(0)
    files = []
    for name, num_rows in (("train", 48), ("dev", 24)):
        lines = []
        for number in range(num_rows):
            words = rng.choice(WORDS[2:], size=6).tolist()
            words[int(rng.integers(6))] = WORDS[number % 2]
            lines.append(json.dumps({"text": " ".join(words), "label": number % 2}) + "\n")
        path = folder / f"{name}.jsonl"
        path.write_text("".join(lines))
        files.append([str(path)])
    usual = ["run.device=cpu", "run.epochs=8", "batch.examples=8", "optimizer.learning_rate=1e-2"]
    usual += ["model.train=lora", f"model.lora_rank={RANK}", "model.dropout=0", "report.samples=0"]
    usual.append(f"model.lora_targets={json.dumps(TARGETS)}")
    return find_recipe(
        "sequence-classification",
        [*usual, *settings],
        checkpoint=str(checkpoint),
        train=files[0],
        dev=files[1],
    )


def test_a_run_trains_adapters_alone_and_peft_loads_them(checkpoint: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    recipe = make_recipe(checkpoint, tmp_path)
    run = FineTuner(recipe, tmp_path / "run").finetune()
    assert run.scores["accuracy"] > 90.0
    predictor = Predictor.from_pretrained(run.model, "cpu", engine="torch")
    texts = ["a good film", "the bad plot very"]
    found: Any = ee.Classifier.from_pretrained(run.model, "cpu").predict(texts)
    # The frozen weights are those of the checkpoint: only targets differ in the merged model.
    before = ee.Encoder.from_pretrained(checkpoint, device="cpu")
    assert torch.equal(
        predictor.model.encoder.embedding.tokens.weight, before.embedding.tokens.weight
    )
    merged = transformers.AutoModelForSequenceClassification.from_pretrained(run.model).eval()
    base = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
    adapted = peft.PeftModel.from_pretrained(base, run.directory / "adapter").eval()
    for text, one in zip(texts, found, strict=True):
        ids = torch.from_numpy(predictor.tokenizer.encode(text).astype(np.int64))[None]
        logits = torch.from_numpy(one.logits).float()
        with torch.no_grad():
            eager = [model(input_ids=ids).logits[0] for model in (merged, adapted)]
            exact = copy.deepcopy(merged).double()(input_ids=ids).logits[0]
        for numbers in eager:
            assert_within_budget(logits, numbers, exact, terms=TERMS)
    # The adapter's folder alone is a model too: base and adapter are merged as they are read.
    with pytest.warns(UnusedWeightsWarning, match=r"classifier\.weight"):
        ours = ee.Encoder.from_pretrained(run.directory / "adapter", device="cpu")
    weight = ours.get_parameter("blocks.1.attention.qkv.weight")
    expected = predictor.model.encoder.get_parameter("blocks.1.attention.qkv.weight")
    truth = before.get_parameter("blocks.1.attention.qkv.weight").detach().double()
    tensors = load_file(run.directory / "adapter" / "adapter_model.safetensors")
    for place, module in enumerate(("query", "key", "value")):
        name = f"base_model.model.bert.encoder.layer.1.attention.self.{module}"
        if module in TARGETS:
            down, up = (tensors[f"{name}.lora_{part}.weight"].double() for part in "AB")
            truth[32 * place : 32 * (place + 1)] += recipe.model.lora_alpha / RANK * up @ down
    assert_within_budget(weight.detach(), expected.detach(), truth, terms=RANK)


def test_gradients_are_those_of_peft(checkpoint: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    recipe = make_recipe(checkpoint, tmp_path)
    data = prepare_data(recipe)
    ours = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    trained = {name for name, p in ours.named_parameters() if p.requires_grad}
    assert all(".down." in n or ".up." in n or "head" in n or "pooler" in n for n in trained)
    with torch.no_grad():
        for layer in adapted_layers(ours).values():
            for up in layer.up:
                up.copy_(0.1 * torch.randn_like(up))
    save_adapter(ours.encoder, ours.head_model, tmp_path / "adapter", base=str(checkpoint))
    base = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter", is_trainable=True)
    theirs, ours = theirs.double().eval(), ours.double().eval()
    items = data.train_items.take(np.arange(1))
    [loss] = ours(data.task.collate(items)).values()
    loss.total.backward()
    ids = torch.from_numpy(items.rows.ids.astype(np.int64))[None]
    labels = torch.from_numpy(items.column("target"))
    theirs(input_ids=ids, labels=labels).loss.backward()
    gradients = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    size = largest(*gradients.values())
    # Sums over the tokens and the widest layer, in each of two blocks.
    terms = 2 * len(items.rows.ids) * TERMS
    rounding = 2 * floor(torch.tensor(size), torch.float64, terms=terms, size=size)
    compared = 0
    for layer in adapted_layers(ours).values():
        for (module, _, _), down, up in zip(layer.parts, layer.down, layer.up, strict=True):
            for part, own in (("A", down), ("B", up)):
                name = f"base_model.model.bert.{module}.lora_{part}.default.weight"
                torch.testing.assert_close(own.grad, gradients[name], rtol=0, atol=rounding)
                compared += 1
    assert compared == 2 * 2 * 5


def test_an_unknown_target_is_refused_with_the_known_ones(checkpoint: Path, tmp_path: Path) -> None:
    recipe = make_recipe(checkpoint, tmp_path, 'model.lora_targets=["q_lin"]')
    with pytest.raises(ConfigError, match=r"no dense layer 'q_lin'; there are dense, key, query"):
        FineTuner(recipe, tmp_path / "run").finetune()


def test_adapters_over_redrawn_blocks_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.reinit_blocks is 1 and model\.train is lora"):
        make_recipe(checkpoint, tmp_path, "model.reinit_blocks=1")
    assert make_recipe(checkpoint, tmp_path, "model.reinit_blocks=1", "model.train=all")


def test_adapters_name_their_checkpoint_from_anywhere(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    fetch = Mock(return_value=str(checkpoint))
    monkeypatch.setattr(hub, "snapshot_download", fetch)
    monkeypatch.chdir(tmp_path)
    course = FineTuning(make_recipe("checkpoint", tmp_path))
    course.read(verify=False)
    course.save_model(course.build_model(), tmp_path / "elsewhere")
    assert not (tmp_path / "adapter").exists()
    for given, expected in (("some/base", "some/base"), ("checkpoint", str(checkpoint.resolve()))):
        course = FineTuning(make_recipe(given, tmp_path))
        course.read(verify=False)
        course.save_model(course.build_model(), tmp_path / "model")
        config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == expected
    assert fetch.call_args.args == ("some/base",)
    monkeypatch.chdir(checkpoint)
    adapter = tmp_path / "adapter"
    assert Predictor.from_pretrained(adapter, "cpu")
    # It has no pooling, and no vectors of its own.
    for load in (
        ee.Embedder.from_pretrained,
        ee.embedding.Ranker.from_pretrained,
        ee.embedding.MultiVectorEmbedder.from_pretrained,
        ee.embedding.SparseEmbedder.from_pretrained,
        partial(compile_directory, output=tmp_path / "compiled"),
    ):
        with pytest.raises(UnsupportedFeatureError, match=rf"load {tmp_path / 'model'}, which"):
            load(adapter)
