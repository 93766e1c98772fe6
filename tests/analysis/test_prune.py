"""Importance is independent of batches, and pruned models equal gated ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.analysis import pruning_curve
from encoder_engine.analysis.importance import head_importance
from encoder_engine.analysis.pruning import cut_heads, least_important, zero_heads, zeroed
from encoder_engine.errors import ConfigError, InputError, RowError, UnsupportedFeatureError
from encoder_engine.families.config import spec_from_config
from encoder_engine.inputs.tables import read_table
from encoder_engine.ops.testing import assert_within_budget, floor
from encoder_engine.packing import pack
from encoder_engine.prediction.predictor import Predictor
from encoder_engine.tasks.multiple_choice import ChoiceExample, MultipleChoiceTask
from encoder_engine.tasks.ranking import RankingTask
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.task_folder import TableFormat
from encoder_engine.tasks.token_classification import TaggedExample, TokenClassificationTask
from tests.analysis.conftest import encoder_of
from tests.finetuning.tiny import write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from encoder_engine.tasks.task import Task
    from tests.analysis.conftest import Run

IDS = [[2, 5, 7, 3], [2, 9, 10, 11, 6, 3], [2, 3]]


@pytest.fixture(scope="module")
def tuned(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tune the small encoder for a few steps, and give its run."""
    folder = tmp_path_factory.mktemp("tuned")
    train = write_rows(folder / "train.jsonl", num_rows=64, seed=0)
    write_rows(folder / "dev.jsonl", num_rows=32, seed=1)
    ee.finetune(
        str(tiny),
        task="sequence-classification",
        train=str(train),
        dev=str(folder / "dev.jsonl"),
        output=str(folder / "run"),
    )
    return folder


def gated(encoder: ee.Encoder, block: int, head: int) -> Tensor:
    """Compute the encoder with a gate of 0 on a head's output."""

    def gate(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mixed = arguments[0].clone()
        mixed[:, head * 16 : (head + 1) * 16] = 0.0
        return (mixed,)

    hook = encoder.blocks[block].get_submodule("attention.output").register_forward_pre_hook(gate)
    with torch.no_grad():
        found: Tensor = encoder(pack(IDS)).last_hidden_state
    hook.remove()
    return found


def test_zeroed_and_cut_heads_equal_a_gate_of_zero(tiny: Path, tmp_path: Path) -> None:
    encoder = ee.Encoder.from_pretrained(tiny, device="cpu")
    expected, whole = gated(encoder, 1, 0), gated(encoder, 0, 5)
    with zeroed(encoder, [(1, 0)]), torch.no_grad():
        torch.testing.assert_close(encoder(pack(IDS)).last_hidden_state, expected)
        encoder.save_pretrained(tmp_path / "zeroed")
    with torch.no_grad():
        torch.testing.assert_close(encoder(pack(IDS)).last_hidden_state, whole, rtol=0, atol=0)
        loaded = ee.Encoder.from_pretrained(tmp_path / "zeroed", device="cpu")
        torch.testing.assert_close(loaded(pack(IDS)).last_hidden_state, expected)
        cut_heads(encoder, [(1, 0)])
        torch.testing.assert_close(encoder(pack(IDS)).last_hidden_state, expected)
        encoder.save_pretrained(tmp_path / "cut")
        again = ee.Encoder.from_pretrained(tmp_path / "cut", device="cpu")
        assert again.spec == encoder.spec
        torch.testing.assert_close(again(pack(IDS)).last_hidden_state, expected)
    assert json.loads((tmp_path / "cut/config.json").read_text())["pruned_heads"] == {"1": [0]}
    assert encoder.spec.blocks[1].attention.num_heads == 1
    with pytest.raises(UnsupportedFeatureError, match="no head left"):
        cut_heads(encoder, [(0, 0), (0, 1)])
    with pytest.raises(InputError, match="no head 2 in block 0"):
        zero_heads(encoder, [(0, 2)])


def wide_encoder() -> ee.Encoder:
    """Return two blocks of four heads."""
    return encoder_of(16, width=32, layers=2, heads=4, positions=16)


def test_heads_that_cannot_be_cut_leave_the_encoder_as_it_was() -> None:
    encoder = wide_encoder()
    spec, config = encoder.spec, dict(encoder.config)
    with torch.no_grad():
        before = encoder(pack(IDS)).last_hidden_state
        with pytest.raises(UnsupportedFeatureError, match="block 1, with no head left"):
            cut_heads(encoder, [(0, 0), *((1, head) for head in range(4))])
        assert (encoder.spec, encoder.config) == (spec, config)
        assert torch.equal(encoder(pack(IDS)).last_hidden_state, before)


def test_heads_that_are_cut_one_after_the_other_keep_their_numbers(tmp_path: Path) -> None:
    one, other = wide_encoder(), wide_encoder()
    cut_heads(one, [(0, 1), (0, 3), (1, 0)])
    cut_heads(other, [(0, 1)])
    cut_heads(other, [(0, 2), (1, 0)])
    assert one.config["pruned_heads"] == other.config["pruned_heads"] == {"0": [1, 3], "1": [0]}
    other.save_pretrained(tmp_path / "cut")
    assert json.loads((tmp_path / "cut/config.json").read_text())["num_attention_heads"] == 4
    loaded = ee.Encoder.from_pretrained(tmp_path / "cut", device="cpu")
    with torch.no_grad():
        expected = one(pack(IDS)).last_hidden_state
        torch.testing.assert_close(loaded(pack(IDS)).last_hidden_state, expected)


def test_a_compiled_encoder_embeds_with_the_heads_that_are_left(tiny: Path, tmp_path: Path) -> None:
    encoder = ee.Encoder.from_pretrained(tiny, device="cpu")
    cut_heads(encoder, [(1, 0)])
    encoder.save_pretrained(tmp_path / "cut")
    ee.Tokenizer.from_pretrained(tiny).save(tmp_path / "cut")
    texts = ["a good film", "the plot"]
    engines: list[tuple[Literal["compiled", "torch"], str]] = [
        ("compiled", "float32"),
        ("torch", "float32"),
        ("torch", "float64"),
    ]
    compiled, eager, truth = (
        torch.from_numpy(
            ee.Embedder.from_pretrained(
                tmp_path / "cut", device="cpu", dtype=dtype, engine=engine, pooling="mean"
            ).encode(texts)
        )
        for engine, dtype in engines
    )
    # The longest sums: the width of the MLP, and the keys of a text.
    terms = encoder.config["intermediate_size"] + max(map(len, texts))
    assert_within_budget(compiled, eager, truth.double(), terms=terms)


@pytest.mark.parametrize(
    ("pruned", "expected"),
    [
        ({"2": [0]}, "names block 2; there are 2"),
        ({"0": [4]}, r"names the heads \[4\] of block 0, which has 4"),
        ({"0": [0, 1, 2, 3]}, "keeps one at least"),
        ({"first": [0]}, "the block 'first'"),
        ([1], "pruned_heads must be an object"),
    ],
)
def test_pruned_heads_that_are_not_there_are_refused(pruned: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        spec_from_config({**wide_encoder().config, "pruned_heads": pruned})


@pytest.mark.slow
def test_importance_is_the_gates_gradient_and_independent_of_batches(tuned: Path) -> None:
    predictor = Predictor.from_pretrained(tuned / "run", "cpu", "float32", engine="torch")
    predictor.model.double()
    records = list(read_table(tuned / "dev.jsonl"))
    examples = [predictor.task.read(record) for record in records]
    whole = head_importance(predictor, examples)
    single = head_importance(predictor, examples, batch_tokens=1)
    largest = float(np.max(whole))
    # A gate's gradient sums the 16 places of each of 10 tokens of 32 texts.
    rounding = 2 * floor(torch.tensor(largest), torch.float64, terms=16 * 10 * 32, size=largest)
    np.testing.assert_allclose(np.stack(whole), np.stack(single), rtol=0, atol=rounding)
    # By finite differences of each text's loss, where a head's output weights shrink.
    assert whole[0][1] == pytest.approx(np.mean(slopes(predictor, examples)), rel=1e-5)


def slopes(predictor: Predictor, examples: Sequence[Any]) -> list[float]:
    """Return the absolute slope of each example's loss on the second head of the first block.

    By central differences: rounding of 1e-16 / 1e-6, and a curvature of 1e-12.
    """
    weight = predictor.model.encoder.blocks[0].get_submodule("attention.output").weight
    assert isinstance(weight, torch.Tensor)
    step, found = 1e-6, []
    for example in examples:
        items = predictor.task.encode([example], predictor.tokenizer, predictor.windows)
        losses = []
        for factor in (1 + step, 1 - step):
            before = weight.detach().clone()
            with torch.no_grad():
                weight[:, 16:] *= factor
                values = predictor.model(predictor.task.collate(items))
                losses.append(float(next(iter(values.values())).total))
                weight.copy_(before)
        found.append(abs(losses[0] - losses[1]) / (2 * step))
    return found


def choices() -> list[ChoiceExample]:
    """Return questions of two and of three endings."""
    return [
        ChoiceExample("a film", ("good plot", "bad", "the very plot"), 1),
        ChoiceExample("the plot", ("not a film", "good good"), 0),
    ]


def long_sentences() -> list[TaggedExample]:
    """Return sentences that six tokens cut into windows, and one that they do not."""
    words = ("the", "good", "film", "not", "a", "bad", "plot", "very", "good")
    return [
        TaggedExample(words[:length], tuple("AB"[n % 2] for n in range(length)), 0)
        for length in (9, 7, 3)
    ]


@pytest.mark.parametrize(
    ("task", "examples"),
    [(MultipleChoiceTask(), choices()), (TokenClassificationTask(), long_sentences())],
    ids=["choices", "windows"],
)
def test_importance_is_of_examples_and_not_of_their_sequences(
    tiny: Path, task: Task[Any, Any], examples: Sequence[Any]
) -> None:
    task = task.fit(examples)
    torch.manual_seed(0)
    model = task.make_model(ee.Encoder.from_pretrained(tiny, device="cpu"))
    windows = Windows(max_length=6 if isinstance(task, TokenClassificationTask) else 64)
    predictor = Predictor(model, task, ee.Tokenizer.from_pretrained(tiny), windows)
    model.double().eval()
    items = task.encode(examples, predictor.tokenizer, windows)
    assert len(items.rows) > len(examples)
    importance = head_importance(predictor, examples)
    assert importance[0][1] == pytest.approx(np.mean(slopes(predictor, examples)), rel=1e-5)


def test_rows_that_the_main_score_does_not_score_are_refused(tiny: Path, tmp_path: Path) -> None:
    task = RankingTask(loss="listwise")
    model = task.make_model(ee.Encoder.from_pretrained(tiny, device="cpu"))
    predictor = Predictor(model, task, ee.Tokenizer.from_pretrained(tiny), Windows(max_length=64))
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"query": "good", "positive": "film", "score": 0.5}\n')
    with pytest.raises(RowError, match=r"pairs\.jsonl, line 1: ndcg scores how documents are"):
        pruning_curve.read_examples(predictor, [str(data)])
    data.write_text("")
    assert pruning_curve.read_examples(predictor, [str(data)]) == []


def test_rows_are_read_in_the_form_of_the_training_files(tiny: Path, tmp_path: Path) -> None:
    task = SequenceClassificationTask(labels=("no", "yes"))
    model = task.make_model(ee.Encoder.from_pretrained(tiny, device="cpu"))
    tables = TableFormat(header=("label", "text"), quoting=False)
    tokenizer = ee.Tokenizer.from_pretrained(tiny)
    predictor = Predictor(model, task, tokenizer, Windows(max_length=64), tables)
    data = tmp_path / "rows.tsv"
    data.write_text('yes\t"good film\nno\tbad plot\n')
    examples = pruning_curve.read_examples(predictor, [str(data)])
    assert [(one.text, one.gold) for one in examples] == [
        ('"good film', ("yes",)),
        ("bad plot", ("no",)),
    ]


def test_the_least_important_heads_come_first() -> None:
    importance = [np.array([3.0, 1.0]), np.array([0.1, 5.0])]
    assert least_important(importance, 2) == [(1, 0), (0, 1)]
    with pytest.raises(InputError, match="5 heads are to be removed of 4"):
        least_important(importance, 5)


def test_the_card_of_a_run_names_files_without_folders(
    tuned: Path, run: Run, tmp_path: Path
) -> None:
    output = tmp_path / "CARD.md"
    assert run("card", tuned / "run", "-o", output).code == 0
    page = output.read_text()
    assert "train.jsonl" in page
    assert str(tuned) not in page
    report = json.loads((tuned / "run/report.json").read_text())
    assert f"| accuracy | {report['scores']['accuracy']:.4g}" in page
    assert "## Harms" in page
    assert run("card", tuned / "run", "-o", output).code == 1


@pytest.mark.filterwarnings("ignore")
def test_the_verb_prunes_a_run_that_predicts_on(tuned: Path, run: Run, tmp_path: Path) -> None:
    data, output = tuned / "dev.jsonl", tmp_path / "pruned"
    arguments = (
        "prune",
        "--model",
        tuned / "run",
        data,
        "--device",
        "cpu",
        "--heads",
        "1",
        "--json",
    )
    result = run(*arguments, "--zeroed", "--output", output, "--html", tmp_path / "page.html")
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    assert [row["removed"] for row in found["curve"]] == [0, 1, 2, 3, 4]
    (block, head) = found["removed"][0]
    pruned = Predictor.from_pretrained(output, "cpu", engine="torch")
    weight = pruned.model.encoder.blocks[block].get_submodule("attention.output").weight
    assert isinstance(weight, torch.Tensor)
    assert not weight[:, head * 16 : (head + 1) * 16].any()
    cut = tmp_path / "cut"
    assert run(*arguments, "--output", cut).code == 0
    loaded = Predictor.from_pretrained(cut, "cpu", engine="torch")
    attention = loaded.module.encoder.blocks[block]
    assert attention.get_submodule("attention.output").weight.shape == (32, 16)
    cut_score = json.loads(
        run("evaluate", "--model", cut, data, "--json", "--device", "cpu").output
    )
    assert cut_score["scores"][found["score"]] == found["curve"][1]["score"]
    score = run("evaluate", "--model", output, data, "--json", "--device", "cpu")
    assert json.loads(score.output)["scores"][found["score"]] == found["curve"][1]["score"]


@pytest.mark.filterwarnings("ignore")
def test_the_verb_refuses_before_it_scores(
    tuned: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(*_: object, **__: object) -> None:
        pytest.fail("the curve was computed")

    monkeypatch.setattr(pruning_curve, "prune_curve", unreached)
    data, full = tuned / "dev.jsonl", tmp_path / "full"
    arguments = ("prune", "--model", tuned / "run", data, "--device", "cpu")
    full.mkdir()
    (full / "config.json").write_text("{}")
    for taken in (full, tuned / "run" / "model"):
        before = (taken / "config.json").read_bytes()
        result = run(*arguments, "--heads", "1", "--output", taken)
        assert result.code == 1
        assert "exists and is not empty" in result.errors
        assert (taken / "config.json").read_bytes() == before
    result = run(*arguments, "--heads", "99", "--output", tmp_path / "new")
    assert result.code == 2
    assert "--heads is 99, and" in result.errors
    result = run(*arguments, "--heads", "4", "--output", tmp_path / "new")
    assert result.code == 1
    assert "set its weights to 0 with --zeroed" in result.errors
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore")
def test_the_verb_leaves_a_gap_where_there_is_no_score(
    tuned: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan, page = float("nan"), tmp_path / "page.html"
    scores = [90.0, nan, 80.0, 70.0]
    points = [pruning_curve.CurvePoint(n, score, score) for n, score in enumerate(scores)]
    monkeypatch.setattr(pruning_curve, "prune_curve", lambda *_, **__: points)
    arguments = ("prune", "--model", tuned / "run", tuned / "dev.jsonl", "--device", "cpu")
    result = run(*arguments, "--json", "--html", page)
    assert result.code == 0, result.errors
    assert "NaN" not in result.output
    assert [point["score"] for point in json.loads(result.output)["curve"]] == [90, None, 80, 70]
    (drawing,) = (part for part in page.read_text().split("<svg") if "polyline" in part)
    assert "nan" not in drawing
    # Of both lines: a dot, a gap, and a line of two points.
    assert drawing.count("<circle") == drawing.count("<polyline") == 2
