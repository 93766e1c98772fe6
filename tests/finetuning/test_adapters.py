"""The adapters of every task are saved with all that was trained beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.errors import (
    ChecksumError,
    NonFiniteWeightsError,
    TensorNamesError,
    TensorShapeError,
)
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.inputs.tables import read_table
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.prediction.predictor import Predictor
from tests.finetuning.task_rows import write_masked_lm, write_task_rows

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.finetuning.run import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
CASES = [
    ("sequence-classification", ()),
    ("regression", ()),
    ("token-classification", ("task.decoding=argmax",)),
    ("token-classification", ("task.decoding=crf",)),
    ("span-classification", ("task.summary=attention", "task.hidden=16")),
    ("question-answering", ()),
    ("multiple-choice", ()),
    ("ranking", ()),
    ("embedding", ()),
    ("late-interaction", ("task.dimension=8",)),
    ("sparse", ()),
]
# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64


def tune(checkpoint: Path, folder: Path, task: str, *settings: str) -> Run:
    files = [
        [str(write_task_rows(folder / f"{name}.jsonl", task, num_rows=count, seed=count))]
        for name, count in (("train", 24), ("dev", 8))
    ]
    usual = ["run.device=cpu", "run.epochs=2", "batch.examples=8", "optimizer.learning_rate=1e-2"]
    usual += ["model.train=lora", "model.lora_rank=3", "report.samples=0"]
    recipe = find_recipe(
        task,
        [*usual, *settings],
        checkpoint=str(write_masked_lm(checkpoint) if task == "sparse" else checkpoint),
        train=files[0],
        dev=files[1],
    )
    return FineTuner(recipe, folder / "run").finetune()


def decided(record: Any) -> Any:
    """Return what a record says, without its real numbers."""
    if isinstance(record, dict):
        return {name: decided(value) for name, value in record.items()}
    if isinstance(record, list):
        return [decided(value) for value in record]
    return None if isinstance(record, float) else record


@pytest.mark.parametrize(
    ("task", "settings", "engine"),
    [
        pytest.param(*case, engine, marks=[pytest.mark.exhaustive] * (place % 2 != by))
        for place, case in enumerate(CASES)
        for by, engine in enumerate(("compiled", "torch"))
    ],
)
def test_a_model_is_read_from_its_adapters_alone(
    checkpoint: Path, tmp_path: Path, task: str, settings: tuple[str, ...], engine: Any
) -> None:
    run = tune(checkpoint, tmp_path, task, *settings)
    merged = Predictor.from_pretrained(run.model, "cpu", engine="torch")
    adapted = Predictor.from_pretrained(run.directory / "adapter", "cpu", engine=engine)
    assert adapted.engine.name == engine
    assert adapted.task == merged.task
    examples = [merged.task.read(record) for record in read_table(tmp_path / "dev.jsonl")]
    predictions = merged.predict_examples(examples)
    assert merged.task.score(examples, predictions) == run.scores
    both = zip(predictions, adapted.predict_examples(examples), examples, strict=True)
    for one, two, example in both:
        records = [merged.task.to_record(example, prediction) for prediction in (one, two)]
        assert decided(records[0]) == decided(records[1])
    items = merged.task.encode(examples, merged.tokenizer, merged.windows)
    inputs, batch = merged.task.collate(items), merged.task.batch(items)
    found, eager = adapted.engine.outputs(batch), merged.model.outputs(inputs)
    exact = merged.model.double().outputs(inputs)
    assert found.keys() == eager.keys()
    for name in found:
        ours, theirs, truth = (torch.from_numpy(one[name]) for one in (found, eager, exact))
        legal = torch.isfinite(truth)
        assert torch.equal(legal, torch.isfinite(ours))
        assert_within_budget(
            *(ours[legal], theirs[legal], truth[legal].double()), name, terms=TERMS
        )


def test_the_verbs_and_classes_read_adapters(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune(checkpoint, tmp_path, "span-classification", "task.hidden=16")
    adapter, dev = run.directory / "adapter", str(tmp_path / "dev.jsonl")
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["head"]
    assert main(["evaluate", "--model", str(adapter), dev, "--device", "cpu", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores == run.scores
    written = []
    for model in (run.model, adapter):
        output = tmp_path / f"{model.name}.jsonl"
        assert (
            main(["predict", "--model", str(model), dev, "-o", str(output), "--device", "cpu"]) == 0
        )
        written.append([decided(json.loads(line)) for line in output.read_text().splitlines()])
    assert written[0] == written[1]
    taggers = [ee.SpanTagger.from_pretrained(path, "cpu") for path in (run.model, adapter)]
    one, two = (tagger.predict([["a", "good", "film"]])[0].spans for tagger in taggers)
    assert [span[:3] for span in one] == [span[:3] for span in two]
    # Another task.json beside the same adapters is refused.
    path = adapter / "task.json"
    values = json.loads(path.read_text())
    (adapter / "SHA256SUMS").unlink()
    for name, value, error in (
        ("hidden", 8, TensorShapeError),
        ("summary", "attention", TensorNamesError),
    ):
        path.write_text(json.dumps(values | {"task": values["task"] | {name: value}}))
        with pytest.raises(error, match=r"task\.json was changed"):
            ee.SpanTagger.from_pretrained(adapter, "cpu")


def test_a_head_of_nan_beside_adapters_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Encoders are refused for it; the head's weights were read as they were."""
    adapter = tune(checkpoint, tmp_path, "sequence-classification").directory / "adapter"
    path = adapter / "adapter_model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    tensors["base_model.model.classifier.weight"][0, 0] = float("nan")
    save_file(tensors, path)
    (adapter / "SHA256SUMS").unlink()
    with pytest.raises(NonFiniteWeightsError, match=r"classifier\.weight holds NaN or infinity"):
        ee.Classifier.from_pretrained(adapter, "cpu")


def test_adapters_are_refused_over_other_weights(checkpoint: Path, tmp_path: Path) -> None:
    run = tune(checkpoint, tmp_path, "sequence-classification")
    adapter = run.directory / "adapter"
    former = ee.Classifier.from_pretrained(adapter, "cpu").predict(["a good film"])[0].logits
    # The same weights in another file are accepted.
    (checkpoint / "SHA256SUMS").unlink()
    torch.save(load_file(checkpoint / "model.safetensors"), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    found = ee.Classifier.from_pretrained(adapter, "cpu").predict(["a good film"])[0].logits
    assert found.tobytes() == former.tobytes()
    encoder = ee.Encoder.from_pretrained(checkpoint, device="cpu")
    with torch.no_grad():
        encoder.embedding.tokens.weight.add_(1.0)
    encoder.save_pretrained(checkpoint)
    with pytest.raises(ChecksumError, match=r"trained on other weights than .*checkpoint has now"):
        ee.Classifier.from_pretrained(adapter, "cpu")
    assert ee.Classifier.from_pretrained(run.model, "cpu").predict(["a good film"])


def test_peft_loads_adapters_beside_a_crf(checkpoint: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    run = tune(checkpoint, tmp_path, "token-classification", "task.decoding=crf")
    predictor = Predictor.from_pretrained(run.model, "cpu")
    labels = len(predictor.task.labels)  # type: ignore[attr-defined]
    automatic = transformers.AutoModelForTokenClassification
    base = automatic.from_pretrained(checkpoint, num_labels=labels)
    adapted = peft.PeftModel.from_pretrained(base, run.directory / "adapter").eval()
    plain = automatic.from_pretrained(run.model).eval()
    ids = torch.from_numpy(predictor.tokenizer.encode("a good film").astype(np.int64))[None]
    with torch.no_grad():
        found, eager = (model(input_ids=ids).logits for model in (adapted, plain))
        truth = plain.double()(input_ids=ids).logits
    assert_within_budget(found, eager, truth, terms=TERMS)
