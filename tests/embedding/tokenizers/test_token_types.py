"""Every door gives pairs the token types that the tokenizer's model_input_names ask for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.embedding import Ranker
from encoder_engine.models import SequenceClassification
from tests.embedding.library_models import assert_agree, library_model, library_models
from tests.embedding.tiny_model import write_head_directory, write_json

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = [("the query", "a row"), ("long words", "query 7, the text"), ("row", "")]
UNTYPED = ["input_ids", "attention_mask"]
# The settings of a tokenizer_config.json, and whether they give pairs token types.
SETTINGS: dict[str, tuple[dict[str, Any], bool]] = {
    "listed": ({"model_input_names": UNTYPED}, False),
    "by class": ({"tokenizer_class": "DistilBertTokenizer"}, False),
    "typed": ({"tokenizer_class": "BertTokenizer"}, True),
}


def write(folder: Path, name: str, *, labels: int = 1) -> Path:
    """Write a model for sequence classification with such a tokenizer."""
    write_head_directory(folder, SequenceClassification, num_labels=labels)
    config = {"do_lower_case": True, "model_max_length": 24} | SETTINGS[name][0]
    write_json(folder / "tokenizer_config.json", config)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("name", SETTINGS)
def test_rankers_score_as_cross_encoders(name: str, engine: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "model", name)
    ranker = Ranker.from_pretrained(path, device="cpu", engine=engine)
    eager, truth = (
        model.predict(PAIRS, convert_to_tensor=True)
        for model in library_models("CrossEncoder", path)
    )
    scores = ranker.score(PAIRS)
    assert_agree(scores, eager, truth)
    write_json(path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    typed = Ranker.from_pretrained(path, device="cpu", engine=engine).score(PAIRS)
    assert np.array_equal(typed, scores) == SETTINGS[name][1]


@pytest.mark.slow
def test_one_row_of_types_is_no_reason_to_refuse(tmp_path: Path) -> None:
    import transformers

    path = write(tmp_path, "listed")
    (path / "SHA256SUMS").unlink(missing_ok=True)
    config = transformers.BertConfig.from_pretrained(path, type_vocab_size=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertForSequenceClassification(config).save_pretrained(path)
    scores = Ranker.from_pretrained(path, device="cpu").score(PAIRS)
    eager, truth = (
        model.predict(PAIRS, convert_to_tensor=True)
        for model in library_models("CrossEncoder", path)
    )
    assert_agree(scores, eager, truth)


@pytest.mark.slow
def test_accelerated_models_get_the_same_types(tmp_path: Path) -> None:
    from encoder_engine.integrations.sentence_transformers import accelerate

    path = write(tmp_path, "listed")
    eager, truth = (
        model.predict(PAIRS, convert_to_tensor=True)
        for model in library_models("CrossEncoder", path)
    )
    faster = accelerate(library_model("CrossEncoder", path))
    assert_agree(faster.predict(PAIRS, convert_to_tensor=True), eager, truth)


@pytest.mark.slow
def test_a_model_is_tuned_and_predicts_as_transformers_does(tmp_path: Path) -> None:
    import transformers

    path = write(tmp_path / "model", "listed", labels=2)
    rows = [{"text": a, "other": b, "label": str(i % 2)} for i, (a, b) in enumerate(PAIRS[:2] * 4)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = tmp_path / "run"
    settings = ["task.pair=other", "run.device=cpu", "run.epochs=1", "report.samples=20"]
    given = [part for setting in settings for part in ("--set", setting)]
    files = ["--train", str(file), "--dev", str(file), "--output", str(run), "-q"]
    command = ["finetune", "sequence-classification", "--model", str(path), *files, *given]
    assert main(command) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    inputs = tokenizer(*zip(*PAIRS[:2], strict=True), padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model")
    with torch.no_grad():
        eager = model(**inputs).logits
        truth = model.double()(**inputs).logits
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        found = ee.Classifier.from_pretrained(run, "cpu", engine=engine).predict(PAIRS[:2])
        assert_agree(np.stack([one.logits for one in found]).astype(np.float32), eager, truth)
