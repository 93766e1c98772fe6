"""Fine-tuning from labelled files to a model that predicts as training evaluated it."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.errors import ConfigError, InputError, ResumeError, RowError
from encoder_engine.finetuning.comparison import evaluate_files
from encoder_engine.finetuning.course import FineTuning
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner, finetune_seeds
from encoder_engine.inputs.tables import read_table
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.embedders.embedding import EmbeddingTask
from encoder_engine.training.best import Best, SelectionRecipe
from encoder_engine.training.schedule import learning_rate_factor
from tests.finetuning.tiny import write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.training.loop import Progress

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning")


def recipe_of(checkpoint: Path, tmp_path: Path, *settings: str) -> FineTuningRecipe:
    train = write_rows(tmp_path / "train.jsonl", num_rows=48, seed=0)
    dev = write_rows(tmp_path / "dev.jsonl", num_rows=20, seed=1)
    usual = ["run.device=cpu", "run.epochs=6", "batch.examples=8", "optimizer.learning_rate=3e-3"]
    return find_recipe(
        "sequence-classification",
        [*usual, "report.samples=50", *settings],
        checkpoint=str(checkpoint),
        train=[str(train)],
        dev=[str(dev)],
    )


def test_a_model_learns_and_predicts_as_it_was_evaluated(checkpoint: Path, tmp_path: Path) -> None:
    recipe = recipe_of(checkpoint, tmp_path)
    run = FineTuner(recipe, tmp_path / "run").finetune()
    assert run.scores["accuracy"] == 100.0
    assert run.intervals.keys() == run.scores.keys()
    found = run.intervals["accuracy"]
    # All rows are right, and so is every sample of them.
    assert (found.low, found.mean, found.high) == (100.0, 100.0, 100.0)
    assert run.degenerate is None
    predictor = Predictor.from_pretrained(run.directory, "cpu", engine="torch")
    records = list(read_table(tmp_path / "dev.jsonl"))
    examples = [predictor.task.read(record) for record in records]
    assert predictor.task.score(examples, predictor.predict_examples(examples)) == run.scores
    classifier = ee.Classifier.from_pretrained(run.model, "cpu")
    assert [found.labels for found in classifier.predict(["a good film", "bad bad plot"])] == [
        ("yes",),
        ("no",),
    ]
    # The same folder again: nothing is trained.
    assert FineTuner(recipe, tmp_path / "run").finetune().scores == run.scores


class StoppedError(Exception):
    """Ends a run from outside."""


def stop_at(step: int, progress: Progress) -> None:
    if progress.step == step:
        raise StoppedError


@pytest.mark.slow
def test_an_interrupted_run_goes_on_bit_for_bit(checkpoint: Path, tmp_path: Path) -> None:
    recipe = recipe_of(checkpoint, tmp_path, "run.evaluate_every=3", "run.checkpoint_every=5")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run = FineTuner(recipe, whole).finetune()

    for last in (7, 16):
        with pytest.raises(StoppedError):
            FineTuner(recipe, parts).finetune(partial(stop_at, last))
    resumed = FineTuner(recipe, parts).finetune()
    assert resumed.scores == run.scores
    assert (whole / "log.jsonl").read_bytes() == (parts / "log.jsonl").read_bytes()
    for name in ("model.safetensors", "task.json"):
        assert (run.model / name).read_bytes() == (resumed.model / name).read_bytes()
    changed = replace(recipe, batch=replace(recipe.batch, examples=4))
    with pytest.raises(ResumeError, match=r"batch\.examples"):
        FineTuner(changed, parts).finetune()


@pytest.mark.parametrize("part", ["weights", "tokenizer"])
def test_another_checkpoint_is_refused_before_the_model_is_written(
    checkpoint: Path, tmp_path: Path, part: str
) -> None:
    recipe = recipe_of(checkpoint, tmp_path, "run.epochs=1", "report.samples=0")
    run = FineTuner(recipe, tmp_path / "run").finetune()
    written = {path.name: path.read_bytes() for path in run.model.iterdir()}
    other = shutil.copytree(checkpoint, tmp_path / "other")
    moved = replace(recipe, model=replace(recipe.model, checkpoint=str(other)))
    assert FineTuner(moved, tmp_path / "run").finetune().scores == run.scores
    if part == "weights":
        encoder = ee.Encoder.from_pretrained(other, device="cpu")
        with torch.no_grad():
            encoder.embedding.tokens.weight.add_(1.0)
        encoder.save_pretrained(other)
    else:
        words = (checkpoint / "vocab.txt").read_text().splitlines()
        (other / "vocab.txt").write_text("\n".join([*words[:5], *reversed(words[5:])]) + "\n")
        ee.Tokenizer.from_pretrained(other / "vocab.txt", lowercase=True).save(other)
    with pytest.raises(ResumeError, match=f"the checkpoint has another content: {part}; name"):
        FineTuner(moved, tmp_path / "run").finetune()
    assert {path.name: path.read_bytes() for path in run.model.iterdir()} == written


def test_other_settings_of_an_embedder_or_its_guide_are_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    made = EmbeddingTask(loss="in_batch", pooling=("mean",), prompts={"query": "very "})
    for name in ("model", "guide"):
        encoder = ee.Encoder.from_pretrained(checkpoint, device="cpu")
        made.make_model(encoder).save_pretrained(tmp_path / name)
        ee.Tokenizer.from_pretrained(checkpoint).save(tmp_path / name)
        (tmp_path / name / "SHA256SUMS").unlink()
    (tmp_path / "train.jsonl").write_text('{"query": "good", "positive": "film"}\n' * 4)
    recipe = find_recipe(
        "embedding",
        ["run.device=cpu", f"task.guide={tmp_path / 'guide'}"],
        checkpoint=str(tmp_path / "model"),
        train=[str(tmp_path / "train.jsonl")],
        dev=None,
    )

    def read() -> FineTuning:
        course = FineTuning(recipe)
        course.read(verify=False)
        course.build_model()
        return course

    read().begin(tmp_path)
    read().compare(tmp_path)
    pooling, prompts = "1_Pooling/config.json", "config_sentence_transformers.json"
    for name, words, change in (
        (f"model/{pooling}", ('"mean"', '"cls"'), r"task\.pooling was \['mean'\], is \['cls'\]"),
        (f"model/{prompts}", ('"very "', '"not "'), r"task\.prompts\.query was 'very ', is 'not '"),
        (f"guide/{pooling}", ('"mean"', '"cls"'), r"the model of task\.guide has another content"),
    ):
        content = (tmp_path / name).read_text()
        assert words[0] in content
        (tmp_path / name).write_text(content.replace(*words))
        with pytest.raises(ResumeError, match=f"{change}; name another folder, or resume"):
            read().compare(tmp_path)
        (tmp_path / name).write_text(content)
    # A folder of an earlier version cannot be resumed at all.
    recorded = json.loads((tmp_path / "data.json").read_text())
    del recorded["task"]
    (tmp_path / "data.json").write_text(json.dumps(recorded))
    with pytest.raises(ResumeError, match=r"than is compared now; name another folder$"):
        read().compare(tmp_path)


def test_the_gradient_does_not_depend_on_micro_batches(checkpoint: Path, tmp_path: Path) -> None:
    logs = []
    for tokens in (1000, 16):
        recipe = recipe_of(
            checkpoint,
            tmp_path,
            f"batch.micro_tokens={tokens}",
            "model.dropout=0",
            "run.precision=float64",
            "run.epochs=2",
        )
        FineTuner(recipe, tmp_path / str(tokens)).finetune()
        lines = (tmp_path / str(tokens) / "log.jsonl").read_text().splitlines()
        logs.append([json.loads(line)["loss"] for line in lines])
    np.testing.assert_allclose(logs[0], logs[1], rtol=1e-10)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ('{"text": "a", "label": "maybe"}', RowError, r"dev\.jsonl, line 21.*'maybe' is unknown"),
        ('{"text": "a", "label": null}', RowError, "not labelled"),
        ('{"text": 3, "label": "yes"}', RowError, "must be a text"),
    ],
)
def test_a_bad_row_is_refused_by_its_place(
    checkpoint: Path, tmp_path: Path, line: str, error: type[Exception], message: str
) -> None:
    recipe = recipe_of(checkpoint, tmp_path)
    with (tmp_path / "dev.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(error, match=message):
        FineTuner(recipe, tmp_path / "run")


def test_rows_of_one_label_and_long_windows_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    recipe = recipe_of(checkpoint, tmp_path)
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": "yes"}\n' * 3)
    with pytest.raises(InputError, match="1 labels"):
        FineTuner(recipe, tmp_path / "run")
    with pytest.raises(ConfigError, match="takes 64 tokens"):
        FineTuner(recipe_of(checkpoint, tmp_path, "data.max_length=65"), tmp_path / "run")
    with pytest.raises(ConfigError, match="epoch"):
        recipe_of(checkpoint, tmp_path, "run.epoch=3")


def test_seeds_have_an_interval(checkpoint: Path, tmp_path: Path) -> None:
    recipe = recipe_of(checkpoint, tmp_path, "run.epochs=1")
    runs, intervals = finetune_seeds(recipe, tmp_path / "seeds", 2)
    assert [run.directory.name for run in runs] == ["seed-0", "seed-1"]
    scores = [run.scores["nll"] for run in runs]
    assert intervals["nll"].mean == pytest.approx(sum(scores) / 2)
    assert scores[0] != scores[1]


def test_frozen_blocks_keep_their_weights(checkpoint: Path, tmp_path: Path) -> None:
    recipe = recipe_of(checkpoint, tmp_path, "run.epochs=1", "model.frozen_blocks=1")
    run = FineTuner(recipe, tmp_path / "run").finetune()
    before = ee.Encoder.from_pretrained(checkpoint, device="cpu").state_dict()
    predictor = Predictor.from_pretrained(run.model, "cpu", engine="torch")
    after = predictor.module.encoder.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith(("embedding.", "blocks.0."))} <= same
    assert not any(name.startswith("blocks.1.") and name.endswith("weight") for name in same)


def test_the_first_of_equal_scores_is_best_and_nan_never() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    best = Best(model, SelectionRecipe(patience=2), "score")
    for step, score in enumerate([math.nan, 1.0, 1.0, math.nan], start=1):
        torch.nn.init.constant_(model.weight, float(step))
        best.see(step, {"score": score}, model)
    assert (best.step, best.score, best.stops) == (2, 1.0, True)
    with best.in_place_of(model):
        assert model.weight.item() == 2.0
    assert model.weight.item() == 4.0


def test_a_schedule_may_begin_as_that_of_transformers() -> None:
    from transformers import TrainingArguments, get_linear_schedule_with_warmup

    from encoder_engine.training.recipe import ScheduleRecipe

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    # 4 of 3.7: three were taken.
    given: Any = SimpleNamespace(warmup_steps=0.1)
    warmup = TrainingArguments.get_warmup_steps(given, 37)
    theirs: Any = get_linear_schedule_with_warmup(optimizer, warmup, 37)  # type: ignore[no-untyped-call]
    schedule = ScheduleRecipe(warmup=0.1, from_zero=True)
    for step in range(37):
        ours = learning_rate_factor(schedule, step, 37)
        assert ours == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        theirs.step()


def test_dev_rows_with_a_teachers_vectors_select_the_checkpoint(
    checkpoint: Path, tmp_path: Path
) -> None:
    axes = np.eye(32)
    rows = [
        {"query": f"{word} film {other}", "vector": (3.0 * axes[place] + axes[5]).tolist()}
        for place, word in enumerate(("good", "bad", "plot"))
        for other in ("a", "the", "very", "not")
    ]
    files = [tmp_path / "train.jsonl", tmp_path / "dev.jsonl"]
    for file, part in zip(files, (rows, rows[::2]), strict=True):
        file.write_text("".join(json.dumps(row) + "\n" for row in part))
    settings = ["run.device=cpu", "run.epochs=6", "batch.examples=4", "report.samples=50"]
    settings += ["optimizer.learning_rate=3e-3", "task.vector_metric=mse"]
    train, dev = ([str(file)] for file in files)
    recipe = find_recipe("embedding", settings, checkpoint=str(checkpoint), train=train, dev=dev)
    run = FineTuner(recipe, tmp_path / "run").finetune()
    assert run.scores.keys() == run.intervals.keys() == {"cosine", "negative_mse"}
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    scores = [line["evaluation"]["negative_mse"] for line in lines if "evaluation" in line]
    assert run.scores["negative_mse"] == max(scores) > scores[0]
    found = evaluate_files(
        run.directory, dev, against=run.directory, samples=0, device="cpu", engine="torch"
    )
    assert found.scores == found.against == run.scores
    # Rows that the loss does not score are refused before training.
    files[1].write_text('{"query": "a", "positive": "b", "score": 1}\n')
    with pytest.raises(RowError, match=r"dev\.jsonl, line 1: vector has no teacher's"):
        FineTuner(recipe, tmp_path / "refused")


def test_the_verbs_tune_score_and_predict(checkpoint: Path, tmp_path: Path) -> None:
    recipe_of(checkpoint, tmp_path)
    train, dev, run = (str(tmp_path / name) for name in ("train.jsonl", "dev.jsonl", "run"))
    settings = ["--set", "run.epochs=2", "--set", "report.samples=20", "--set", "run.device=cpu"]
    common = ["--model", str(checkpoint), "--train", train, "--dev", dev, "--output", run]
    assert main(["finetune", "sequence-classification", *common, *settings, "--quiet"]) == 0
    assert (
        main(["evaluate", "--model", run, dev, "--against", run, "--device", "cpu", "--json"]) == 0
    )
    output = tmp_path / "predictions.jsonl"
    assert main(["predict", "--model", run, dev, "--output", str(output), "--device", "cpu"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(lines) == 20
    assert set(lines[0]) == {"text", "prediction", "probabilities"}


def test_an_interrupted_verb_says_that_it_goes_on(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said that no partial output was left, beside its checkpoints."""

    def stop(*_given: object) -> None:
        raise KeyboardInterrupt

    recipe_of(checkpoint, tmp_path)
    train, dev, run = (str(tmp_path / name) for name in ("train.jsonl", "dev.jsonl", "run"))
    monkeypatch.setattr("encoder_engine.finetuning.run.FineTuner.finetune", stop)
    common = ["--model", str(checkpoint), "--train", train, "--dev", dev, "--output", run]
    assert main(["finetune", "sequence-classification", *common, "--quiet"]) == 1
    assert "stopped; the same command goes on" in capsys.readouterr().err


def test_the_verbs_read_tables_as_training_did(checkpoint: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.tsv"
    # With quoting, the first two rows would be one.
    table.write_text('"good film\tyes\nbad" plot\tno\ngood plot\tyes\nbad film\tno\n' * 4)
    recipe = find_recipe(
        "sequence-classification",
        [
            *("run.device=cpu", "run.steps=2", "report.samples=0"),
            *("data.quoting=false", 'data.header=["text","label"]'),
        ],
        checkpoint=str(checkpoint),
        train=[str(table)],
        dev=[str(table)],
    )
    run = FineTuner(recipe, tmp_path / "run").finetune()
    found = evaluate_files(run.directory, [str(table)], samples=0, device="cpu", engine="torch")
    assert (found.num_rows, found.scores) == (16, run.scores)
    compiled = evaluate_files(run.directory, [str(table)], samples=0, device="cpu")
    assert compiled.scores["accuracy"] == run.scores["accuracy"]
    output = tmp_path / "predictions.jsonl"
    predict = ["predict", "--model", str(run.directory), str(table), "--device", "cpu"]
    assert main([*predict, "-o", str(output)]) == 0
    texts = [json.loads(line)["text"] for line in output.read_text().splitlines()]
    assert texts == ['"good film', 'bad" plot', "good plot", "bad film"] * 4
    # What is named replaces what was recorded.
    renamed = [*predict, "-o", str(output), "--overwrite", "--header", "other,text"]
    assert main(renamed) == 0
    assert json.loads(output.read_text().splitlines()[0])["text"] == "yes"


def test_a_sweep_prints_the_table_of_its_combinations(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe_of(checkpoint, tmp_path)
    files = ["--train", str(tmp_path / "train.jsonl"), "--dev", str(tmp_path / "dev.jsonl")]
    command = ["finetune", "sequence-classification", "--model", str(checkpoint), *files]
    command += ["--set", "run.device=cpu", "--set", "report.samples=0", "--set", "run.steps=2"]
    command += ["--sweep", "batch.examples=4,8", "-o", str(tmp_path / "sweep")]
    assert main([*command, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["settings"] for line in lines] == [{"batch.examples": n} for n in ("4", "8")]
    found = []
    for line, number in zip(lines, (4, 8), strict=True):
        folder = tmp_path / f"sweep/batch.examples={number}"
        report = json.loads((folder / "report.json").read_text())
        assert report["scores"] == line["scores"]
        found += [folder] if report["degenerate"] else []
    assert found
    assert main(command) == 0
    shown = capsys.readouterr()
    assert shown.err.count("learned nothing") == len(found)
    assert all(f"the model in {folder} learned nothing" in shown.err for folder in found)
    header, *rows = shown.out.splitlines()
    assert header.startswith("batch.examples  ")
    assert len(rows) == 2
    place = command.index("--dev")
    assert main([*command[:place], *command[place + 2 :]]) == 1
    assert "name their files by --dev" in capsys.readouterr().err
