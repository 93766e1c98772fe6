"""Predictions of every task by the compiled engine, without PyTorch, beside those of its module."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.cli.tuning import predict
from encoder_engine.engine.protocol import OutOfDeviceMemoryError
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    DeviceMemoryError,
    ImplementationError,
    NonFiniteWeightsError,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.inputs.tables import read_table
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.engines import CompiledModel
from encoder_engine.tasks.task import Windows
from tests.finetuning.task_rows import TASK_CASES, write_masked_lm, write_task_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning"),
]
# Most terms of a sum: the inputs of the feed-forward layer's second matrix.
TERMS = 64


def case_id(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(map(str, value.values())) or "default"
    return str(value)


def examples_of(predictor: Predictor, directory: Path) -> list[Any]:
    return [predictor.task.read(record) for record in read_table(directory / "rows.jsonl")]


@pytest.mark.parametrize(
    ("task", "settings", "dtype"),
    [
        pytest.param(*case, dtype, marks=[pytest.mark.exhaustive] * (place % 2 != by))
        for place, case in enumerate(TASK_CASES)
        for by, dtype in enumerate(("float32", "bfloat16"))
    ],
    ids=case_id,
)
def test_both_engines_have_the_same_outputs(
    checkpoint: Path, tmp_path: Path, task: str, settings: dict[str, Any], dtype: str
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, task, settings)
    compiled = Predictor.from_pretrained(directory, "cpu", dtype)
    module = Predictor.from_pretrained(directory, "cpu", dtype, engine="torch")
    exact = Predictor.from_pretrained(directory, "cpu", "float64")
    assert [one.engine.name for one in (compiled, module, exact)] == ["compiled", "torch", "torch"]
    assert (compiled.engine.device, compiled.engine.dtype) == ("cpu", dtype)
    examples = examples_of(compiled, directory)
    # Short windows: several of a text.
    items = compiled.task.encode(examples, compiled.tokenizer, compiled.windows)
    batch = compiled.task.batch(items)
    found, eager, truth = (one.engine.outputs(batch) for one in (compiled, module, exact))
    assert found.keys() == eager.keys()
    kind = getattr(torch, dtype)
    for name in found:
        ours, theirs, true = (torch.from_numpy(one[name]) for one in (found, eager, truth))
        legal = torch.isfinite(true)
        assert torch.equal(legal, torch.isfinite(ours))
        within = (ours[legal].to(kind), theirs[legal].to(kind), true[legal].double())
        assert_within_budget(*within, name, terms=TERMS)
    assert len(compiled.predict_examples(examples)) == len(examples)


@pytest.mark.parametrize(("task", "settings"), TASK_CASES, ids=case_id)
def test_a_prediction_depends_on_nothing_beside_it(
    checkpoint: Path, tmp_path: Path, task: str, settings: dict[str, Any]
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, task, settings)
    predictor = Predictor.from_pretrained(directory, "cpu")
    items = predictor.task.encode(
        examples_of(predictor, directory), predictor.tokenizer, predictor.windows
    )
    together = predictor.engine.outputs(predictor.task.batch(items))
    found: dict[str, list[Any]] = {name: [] for name in together}
    for number in range(len(items)):
        alone = predictor.engine.outputs(predictor.task.batch(items.take(np.array([number]))))
        for name, values in alone.items():
            found[name].append(values)
    for name in found.keys() - {"start", "end", "transitions"}:
        if task == "span-classification":
            # Spans are ordered by width over the whole batch.
            ours, theirs = (
                np.sort(np.concatenate(x), axis=0) for x in (found[name], [together[name]])
            )
        else:
            ours, theirs = np.concatenate(found[name]), together[name]
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_is_rounded_to_int8(checkpoint: Path, tmp_path: Path) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    whole = ee.Classifier.from_pretrained(directory, "cpu")
    rounded = ee.Classifier.from_pretrained(directory, "cpu", quantization="int8")
    assert (whole.engine.quantization, rounded.engine.quantization) == (None, "int8")
    [one], [other] = (each.predict(["a good film"]) for each in (whole, rounded))
    assert not np.array_equal(one.logits, other.logits)
    with pytest.raises(ImplementationError, match="a model with a head needs the compiled"):
        ee.Classifier.from_pretrained(directory, quantization="int8", engine="torch")


def test_an_engine_that_cannot_compute_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    with pytest.raises(ImplementationError, match="it computes float32, bfloat16 and int8"):
        ee.Classifier.from_pretrained(directory, "cpu", "float64", engine="compiled")
    with pytest.raises(ConfigError, match="engine must be one of auto, compiled, torch"):
        ee.Classifier.from_pretrained(directory, engine="numpy")  # type: ignore[arg-type]
    compiled = ee.Classifier.from_pretrained(directory, "cpu")
    with pytest.raises(UnsupportedFeatureError, match="load it with engine='torch'"):
        _ = compiled.module
    module = ee.Classifier.from_pretrained(directory, "cpu", engine="torch")
    assert module.module is module.model


def test_a_model_of_the_callers_own_is_computed_by_its_module(
    checkpoint: Path, tmp_path: Path
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    loaded = ee.Classifier.from_pretrained(directory, "cpu", engine="torch")
    own = ee.Classifier(loaded.model, loaded.task, loaded.tokenizer, Windows(max_length=16))
    assert own.engine.name == "torch"
    assert not own.model.training


HEADS_OF_TASKS = {
    "regression": "sequence-classification",
    "ranking": "sequence-classification",
    "sparse": "masked-lm",
    **dict.fromkeys(("span-classification", "embedding", "late-interaction")),
}


@pytest.mark.parametrize(("task", "settings"), TASK_CASES, ids=case_id)
def test_a_compiled_directory_predicts(
    checkpoint: Path, tmp_path: Path, task: str, settings: dict[str, Any]
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, task, settings)
    head = HEADS_OF_TASKS.get(task, task)
    options = [] if head is None else ["--head", head]
    assert (
        main(
            ["compile", "--model", str(directory), "--output", str(tmp_path / "compiled"), *options]
        )
        == 0
    )
    plain = Predictor.from_pretrained(directory, "cpu")
    mapped = Predictor.from_pretrained(tmp_path / "compiled")
    examples = examples_of(plain, directory)
    batch = plain.task.batch(plain.task.encode(examples, plain.tokenizer, plain.windows))
    found, expected = (one.engine.outputs(batch) for one in (mapped, plain))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    with pytest.raises(ConfigError, match="holds a compiled encoder, which has one engine"):
        Predictor.from_pretrained(tmp_path / "compiled", engine="torch")


def test_weights_beside_an_encoder_are_checked(checkpoint: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    settings = {"decoding": "crf", "scheme": "bio"}
    directory = write_task_model(tmp_path / "model", checkpoint, "token-classification", settings)
    path = directory / "crf.safetensors"
    (directory / "SHA256SUMS").unlink()
    tensors = load_file(path)
    wrong = dict(tensors)
    del wrong["end"]
    nan = {**tensors, "end": np.full_like(tensors["end"], np.nan)}
    longer = {**tensors, "end": np.append(tensors["end"], np.float32(1.0))}
    for content, error, message in (
        (wrong, TensorNamesError, r"missing \['end'\]"),
        (nan, NonFiniteWeightsError, "end holds NaN or infinity"),
        (longer, TensorShapeError, r"task\.json was changed"),
    ):
        save_file(content, path)
        with pytest.raises(error, match=message):
            ee.Tagger.from_pretrained(directory, "cpu")
    path.write_bytes(b"no tensors")
    with pytest.raises(CheckpointFileError, match="not a readable safetensors file"):
        ee.Tagger.from_pretrained(directory, "cpu")
    path.unlink()
    with pytest.raises(CheckpointFileError, match=r"has no crf\.safetensors"):
        ee.Tagger.from_pretrained(directory, "cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_both_engines_fill_masks_and_score_texts(
    checkpoint: Path, tmp_path: Path, dtype: str
) -> None:
    del tmp_path
    directory = write_masked_lm(checkpoint)
    compiled = ee.MaskFiller.from_pretrained(directory, "cpu", dtype)
    module = ee.MaskFiller.from_pretrained(directory, "cpu", dtype, engine="torch")
    exact = ee.MaskFiller.from_pretrained(directory, "cpu", "float64")
    assert [one.engine.name for one in (compiled, module, exact)] == ["compiled", "torch", "torch"]
    texts = ["a good film", "the plot", "not very good a the bad film"]
    scores = [
        np.concatenate([one.log_probabilities for one in filler.score(texts)])
        for filler in (compiled, module, exact)
    ]
    found, eager, truth = map(torch.from_numpy, scores)
    kind = getattr(torch, dtype)
    assert_within_budget(found.to(kind), eager.to(kind), truth, terms=TERMS)


def test_of_equally_probable_tokens_the_first_are_returned(checkpoint: Path) -> None:
    directory = write_masked_lm(checkpoint)
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    best = filler._best(np.log(np.array([0.1, 0.3, 0.1, 0.3, 0.1, 0.1])), 3)
    assert [one.token_id for one in best] == [1, 3, 0]


def test_windows_of_a_batch_that_does_not_fit_are_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    classifier = ee.Classifier.from_pretrained(directory, "cpu")

    def fail(batch: object) -> Any:
        raise OutOfDeviceMemoryError("a batch exceeds the memory of the CPU")

    monkeypatch.setattr(classifier.engine, "outputs", fail)
    with pytest.raises(DeviceMemoryError, match="rows 0 to 1; lower batch_tokens") as caught:
        classifier.predict(["a good film", "the plot"])
    assert caught.value.row == 0
    filler = ee.MaskFiller.from_pretrained(write_masked_lm(checkpoint), "cpu")
    whole = filler.score(["a good film"])[0].log_probabilities
    computed = filler.engine.run

    def two_at_most(rows: Any, *outputs: Any) -> Any:
        if len(rows) > 2:
            raise OutOfDeviceMemoryError("a batch exceeds the memory of the CPU")
        return computed(rows, *outputs)

    monkeypatch.setattr(filler.engine, "run", two_at_most)
    np.testing.assert_array_equal(filler.score(["a good film"])[0].log_probabilities, whole)
    monkeypatch.setattr(filler.engine, "run", lambda rows, _: fail(rows))
    with pytest.raises(DeviceMemoryError, match="a text of 5 tokens alone exceeds") as found:
        filler.score(["", "a good film"])
    assert found.value.row == 1


@pytest.mark.parametrize("error", [None, OutOfDeviceMemoryError("a batch exceeds the memory")])
def test_the_line_of_a_row_that_cannot_be_predicted_is_named(
    error: Exception | None,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    monkeypatch.setattr(predict, "WINDOW_ROWS", 2)
    compute = CompiledModel.outputs

    def damaged(model: Any, batch: Any) -> Any:
        found = compute(model, batch)
        if (batch.rows.lengths > 8).any():
            if error is not None:
                raise error
            found["logits"][:] = np.nan
        return found

    monkeypatch.setattr(CompiledModel, "outputs", damaged)
    rows = tmp_path / "rows.jsonl"
    texts = ["a", "a film", "good ", "a " * 9]
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    output = tmp_path / "out.jsonl"
    assert (
        main(
            ["predict", "--model", str(directory), str(rows), "-o", str(output), "--device", "cpu"]
        )
        == 1
    )
    reason = "the rows from this one on exceed" if error else "the model computes NaN or infinity"
    assert f"rows.jsonl, line 3: {reason}" in capsys.readouterr().err
    assert not output.exists()


def test_a_batch_that_exceeds_the_memory_of_modules_is_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_task_model(tmp_path / "model", checkpoint, "sequence-classification")
    classifier = ee.Classifier.from_pretrained(directory, "cpu", engine="torch")

    def fail(_inputs: object) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(classifier.model, "outputs", fail)
    with pytest.raises(DeviceMemoryError, match="rows 0 to 1; lower batch_tokens"):
        classifier.predict(["a good film", "the plot"])
