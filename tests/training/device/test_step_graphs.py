"""Steps in layouts of fixed sizes, and their graphs, for which recordings stand on a CPU."""

from __future__ import annotations

import copy
import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_engine import ops
from encoder_engine.data.loader import Position
from encoder_engine.models import Encoder
from encoder_engine.models.captured.step_inputs import StepInputs, StepLayout
from encoder_engine.models.training_model import Inputs
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences
from encoder_engine.packing.bucket import size_class
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.training import ModelRecipe, Trainer, loop, optim
from encoder_engine.training.checkpoints import begin_optimizers
from encoder_engine.training.course import StepBatches
from encoder_engine.training.step import graphs
from encoder_engine.training.step.graphs import StepGraphs
from tests.computing import computed_by
from tests.models.captured.recorded import RecordedGraph, record_graphs
from tests.training.runs import CONFIG, run, small_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.training.step.launched import Launched

NO_DROPOUT = {f"{name}_dropout_prob": 0.0 for name in ("hidden", "attention_probs")}
FORMS = {
    "blocks": [],
    "pairs": ["data.form=pairs"],
    "span boundaries": ["objectives.unit=span", "objectives.span_boundary=true"],
    "smoothed": ["objectives.label_smoothing=0.1", "data.form=sentences"],
    # Of ModernBERT: windows, rotary positions, and norms first.
    "windows": ["data.form=sentences"],
}
MODERNBERT = {
    "model_type": "modernbert",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "local_attention": 8,
    "global_attn_every_n_layers": 3,
}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by torch's AdamW and read late, as on a GPU."""
    monkeypatch.setattr(optim, "takes_natively", lambda _tensors: False)
    monkeypatch.setattr(loop, "can_read_late", lambda *_, **__: True)


def parts_of(trainer: Trainer, number: int = 3) -> list[Inputs]:
    stream = trainer._batch_stream.steps(0, 1, Position(), lambda _step: number)
    return list(next(stream).inputs)


def gradients(trainer: Trainer, parts: list[Inputs]) -> dict[str, Tensor]:
    """Return the gradients and, by the name "losses", the sums of a step."""
    batches = StepBatches(parts, len(parts), Position())
    terms = dict.fromkeys(trainer.model.weights, 50.0)
    totals = trainer.gradients.add_up(batches, 0, terms)
    named = trainer.model.named_parameters()
    found = {name: p.grad.detach().clone() for name, p in named if p.grad is not None}
    return found | {"losses": totals.clone()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_fills_a_layout_up_adds_nothing(
    corpus: Path, tmp_path: Path, form: str, precision: str
) -> None:
    settings = ["run.deterministic=false", *FORMS[form]]
    model = ModelRecipe(config=MODERNBERT if form == "windows" else CONFIG | NO_DROPOUT)

    def make(name: str, *others: str) -> Trainer:
        recipe = small_recipe(corpus, *settings, *others, model=model)
        return Trainer(recipe, tmp_path / name)

    ours = make("ours", f"run.precision={precision}", "run.graphs=true")
    plain = make("plain", f"run.precision={precision}")
    exact = make("exact", "run.precision=float64")
    parts = parts_of(plain)
    found = gradients(ours, parts)
    assert ours.gradients.graphs is not None
    assert len(ours.gradients.graphs._parts) >= 1, "no micro-batch has a layout"
    expected = gradients(plain, parts)
    with ops.use("reference"):
        truth = gradients(exact, parts)
    assert_near(found, expected, truth, parts)


def assert_near(
    found: dict[str, Tensor],
    expected: dict[str, Tensor],
    truth: dict[str, Tensor],
    parts: list[Inputs],
) -> None:
    """Compare gradients by the numeric budget, each in units of its largest element."""
    assert found.keys() == expected.keys() == truth.keys()
    sizes = {name: float(x.abs().max()) or 1.0 for name, x in truth.items()}

    def joined(given: dict[str, Tensor]) -> Tensor:
        return torch.cat([(given[n].double() / size).flatten() for n, size in sizes.items()])

    terms = sum(part.batch.num_tokens for part in parts)
    ours, theirs = joined(found).float(), joined(expected).float()
    assert_within_budget(ours, theirs, joined(truth), terms=terms)


@pytest.mark.parametrize("implementation", ["native", "aten"])
def test_texts_with_classes_have_the_gradients_of_the_batch(
    corpus: Path, tmp_path: Path, implementation: str
) -> None:
    settings = [f"model.config.{name}={value}" for name, value in NO_DROPOUT.items()]
    parts = [classify(lengths, 3) for lengths in ([9, 1, 30, 4, 17], [1], [32] * 9)]
    ours = make_classifier(corpus, tmp_path / "ours", *settings)
    plain = make_classifier(corpus, tmp_path / "plain", *settings, "run.graphs=false")
    exact = copy.deepcopy(plain)
    exact.model.double()
    with ops.use("reference"):
        truth = gradients(exact, parts)
    with kernels(implementation):
        found, expected = gradients(ours, parts), gradients(plain, parts)
    assert ours.gradients.graphs is not None
    assert len(ours.gradients.graphs._parts) == len(parts)
    assert_near(found, expected, truth, parts)


def test_memory_of_a_layout_is_written_over_by_each_batch(corpus: Path, tmp_path: Path) -> None:
    recipe = small_recipe(corpus, "data.form=pairs", "run.graphs=true")
    first, alone = (Trainer(recipe, tmp_path / name) for name in ("first", "alone"))
    parts = parts_of(first, 6)
    gradients(first, parts)
    for parameter in first.model.parameters():
        parameter.grad = None
    again, expected = gradients(first, parts[:1]), gradients(alone, parts[:1])
    assert all(torch.equal(again[name], expected[name]) for name in expected)


def test_a_layout_holds_its_batch_and_sequences_that_fill_it() -> None:
    lengths = [5, 31, 1, 17]
    sequences = Sequences.from_lengths(lengths)
    ids = torch.arange(1, sum(lengths) + 1, dtype=torch.int32)
    rows = torch.tensor([0, 7, 8, 40, 53])
    batch = PackedBatch(input_ids=ids, sequences=sequences)
    inputs = Inputs(batch, {}, SelectedRows(rows, sequences))
    layout = StepLayout.of(inputs, {}, longest=20, num_losses=1)
    assert layout is not None
    static = StepInputs(layout, torch.device("cpu"), loss_dtype=torch.float32)
    static.fill(inputs, [2.0])
    found = static.inputs()
    own = found.batch.sequences.lengths
    assert own[: len(lengths)].tolist() == lengths
    assert own[-1] == 0
    assert own[len(lengths) : -1].min() > 0
    assert own[len(lengths) :].max() <= 20, "longer than the model takes"
    assert own.sum() == layout.bucket.num_tokens == len(found.batch.input_ids)
    assert torch.equal(found.batch.input_ids[: len(ids)], ids)
    assert not found.batch.input_ids[len(ids) :].any()
    assert found.rows is not None
    assert found.rows.rows[: len(rows)].tolist() == rows.tolist()
    # What is derived for the device is what the host makes of the same rows.
    checked = SelectedRows(found.rows.rows.clone(), Sequences(found.batch.cu_seqlens.clone()))
    assert torch.equal(found.rows.within.cu_seqlens, checked.within.cu_seqlens)
    assert torch.equal(found.rows.places, checked.places)
    assert static.scales.tolist() == [2.0]


@pytest.mark.parametrize("number", [1, 63, 64, 65, 1000, 1024, 1025, 8192, 9000, 65_536])
def test_a_size_class_wastes_an_eighth_at_most(number: int) -> None:
    size, step = size_class(number)
    assert size - step < number <= size
    assert size % step == 0
    assert step == 64 or step * 8 <= number
    assert size_class(size) == (size, step)


@contextmanager
def kernels(implementation: str) -> Iterator[None]:
    """Compute by operators that a recording sees, which native ones are not."""
    with ExitStack() as stack:
        if implementation == "aten":
            stack.enter_context(ops.use("aten"))
        elif implementation == "triton":
            stack.enter_context(computed_by("triton", requires_grad=True))
            stack.enter_context(ops.use("aten", operation="linear"))
        yield


def classify(lengths: list[int], seed: int) -> Inputs:
    """Draw texts of these lengths with classes."""
    generator = np.random.default_rng(seed)
    ids = torch.from_numpy(generator.integers(5, 60, sum(lengths)).astype(np.int32))
    batch = PackedBatch(input_ids=ids, sequences=Sequences.from_lengths(lengths))
    return Inputs(batch, {"target": torch.from_numpy(generator.integers(0, 2, len(lengths)))})


def make_classifier(corpus: Path, folder: Path, *settings: str) -> Trainer:
    """Make a loop whose model classifies texts."""
    recipe = small_recipe(corpus, "run.graphs=true", "run.deterministic=false", *settings)

    def build(self: Any) -> Any:
        config = dict(recipe.model.config, vocab_size=64, pad_token_id=0)
        torch.manual_seed(1)
        encoder = Encoder(spec_of(config), config=config)
        return SequenceClassificationTask(labels=("a", "b")).make_model(encoder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_build", build)
        return Trainer(recipe, folder)


def spec_of(config: dict[str, Any]) -> Any:
    from encoder_engine.families.config import spec_from_config

    return spec_from_config(config)


def take(trainer: Trainer, batches: list[list[Inputs]]) -> list[dict[str, Any]]:
    """Take steps, and read each once the next is launched."""
    launched: list[Launched] = []
    for step, parts in enumerate(batches):
        taken = StepBatches(parts, len(parts), Position())
        launched.append(trainer._launch(taken, step, 1e-2 / (step + 1)))
    return [one.read(trainer.model.weights) for one in launched]


def state_of(trainer: Trainer) -> list[Tensor]:
    return [tensor.clone() for tensor in trainer._tensors().values()]


# PyTorch's attention reads the lengths on the host: all micro-batches of a layout have the same.
LENGTHS = [[9, 9, 9], [20, 4]]
STEPS = [[classify(LENGTHS[k % 2], 10 * s + k) for k in range(3)] for s in range(6)]


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("settings", [[], ["run.precision=bfloat16"], ["run.ema=0.9"]], ids=str)
def test_replayed_steps_have_the_bits_of_those_without_graphs(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str]
) -> None:
    plain = make_classifier(corpus, tmp_path / "plain", *settings)
    replayed = make_classifier(corpus, tmp_path / "replayed", *settings)
    begin(plain, replayed)
    with kernels("aten"):
        expected = take(plain, STEPS)
        found = record_graphs(monkeypatch, graphs)
        records = take(replayed, STEPS)
    # Of each layout the first step's are computed without a graph, and the first update.
    assert sorted(graph.num_replays for graph in found) == [5, 5, 10]
    assert records == expected
    assert len({record["loss"] for record in records}) == len(STEPS)
    assert all(map(torch.equal, state_of(replayed), state_of(plain)))


def begin(*trainers: Trainer) -> None:
    for trainer in trainers:
        begin_optimizers(trainer.optimizers)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("late")
def test_kernels_replay_masked_micro_batches_of_other_lengths(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Interpreted kernels do not multiply in bfloat16 as a GPU does.
    settings = ["data.form=pairs", "run.graphs=true", "run.deterministic=false"]
    settings += ["run.precision=float32"]
    settings += ["batch.micro_tokens=48", "batch.tokens=96", "model.config.num_hidden_layers=1"]

    def make(name: str) -> Trainer:
        return Trainer(small_recipe(corpus, *settings), tmp_path / name)

    plain, replayed = make("plain"), make("replayed")
    stream = plain._batch_stream.steps(0, 3, Position(), lambda _step: 1)
    batches = [list(one.inputs) for one in stream]
    begin(plain, replayed)
    with kernels("triton"):
        expected = take(plain, batches)
        found = record_graphs(monkeypatch, graphs)
        records = take(replayed, batches)
    assert sum(graph.num_replays for graph in found) == 4
    assert records == expected
    assert all(map(torch.equal, state_of(replayed), state_of(plain)))


def test_the_layout_of_texts_with_classes_is_read_on_no_host(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device=None: False)
    trainer = make_classifier(corpus, tmp_path / "run")
    trainer.model.to("meta")
    computed = StepGraphs(trainer.model, torch.device("meta"), casting=trainer.gradients.casting)
    with computed_by("triton", requires_grad=True):
        computed.begin(STEPS[0])
        for inputs in STEPS[0]:
            assert computed.compute(trainer.gradients._checked(inputs), {"cross_entropy": 1.0})


class Calls(TorchDispatchMode):
    """Lists the operators that the host calls; a replay is one call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operator, and compute it."""
        self.found.append(func.name().removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("late")
def test_a_replayed_step_is_one_call_a_micro_batch_and_one_for_the_update(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_classifier(corpus, tmp_path / "run", "run.precision=bfloat16")
    begin(trainer)
    found = record_graphs(monkeypatch, graphs)
    with kernels("aten"):
        take(trainer, STEPS[:4])
    replays: list[RecordedGraph] = []
    monkeypatch.setattr(RecordedGraph, "replay", lambda graph: replays.append(graph))
    # Checked before, as the batches of a step are on the host.
    parts = [trainer.gradients._checked(inputs) for inputs in STEPS[4]]
    with Calls() as calls:
        trainer._launch(StepBatches(parts, len(parts), Position()), 4, 1e-3)
    assert len(replays) == len(STEPS[4]) + 1
    assert sum(len(graph.calls) for graph in found) > 500
    # A copy a micro-batch, a learning rate for each group, and the totals, made and cleared.
    views = ("view", "slice", "detach", "unbind", "alias", "_to_copy", "lift_fresh", "empty")
    launched = [name for name in calls.found if not name.startswith(views)]
    groups = sum(len(optimizer.param_groups) for optimizer in trainer.optimizers)
    staged = launched.count("zeros") - 1
    assert staged == len(STEPS[4])
    assert launched.count("copy_") == len(STEPS[4])
    assert launched.count("fill_.Scalar") == groups
    others = [x for x in launched if x not in ("zeros", "copy_", "fill_.Scalar")]
    assert sorted(set(others)) == ["clone", "zero_"], others


def test_an_interrupted_run_in_layouts_goes_on_bit_for_bit(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "whole", "run.graphs=true")
    run(corpus, tmp_path / "broken", "run.graphs=true", stop_at=7)
    run(corpus, tmp_path / "broken", "run.graphs=true")
    for name in ("log.jsonl", "model/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["run.precision=float16"], "the scale of float16"),
        (["run.recompute=true"], "run.recompute"),
        (
            [
                "model.config.model_type=electra",
                "model.config.embedding_size=12",
                "objectives.generator.intermediate_size=8",
            ],
            "no layout of fixed sizes",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_has_no_graph_is_computed_without_and_says_so_once(
    corpus: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    settings: list[str],
    reason: str,
) -> None:
    monkeypatch.setattr(graphs, "uses_graphs", lambda _device: True)
    few = ["run.steps=3", "run.checkpoint_every=3", *settings]
    with caplog.at_level(logging.WARNING, logger=graphs.__name__):
        run(corpus, tmp_path / "asked", *few, "run.graphs=true")
    assert len(caplog.records) == 1
    assert reason in caplog.text
    run(corpus, tmp_path / "plain", *few)
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("asked", "plain")]
    assert logs[0] == logs[1]


def test_micro_batches_without_a_layout_say_so_once(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(graphs, "MAX_TOKENS", 40)
    batches = [[classify([19, 22], 1)], [classify([9, 0, 4], 2)], [classify([30, 11], 3)]]
    plain = make_classifier(corpus, tmp_path / "plain", "run.graphs=false")
    asked = make_classifier(corpus, tmp_path / "asked")
    begin(plain, asked)
    with caplog.at_level(logging.WARNING, logger=graphs.__name__):
        assert take(asked, batches) == take(plain, batches)
    no_graphs, *without = [record.getMessage() for record in caplog.records]
    assert no_graphs.endswith("the device is cpu, and graphs are for GPUs")
    assert [message.rpartition(": ")[2] for message in without] == [
        "they have more than 40 tokens",
        "they have sequences without a token, or position ids",
    ]


@pytest.mark.usefixtures("late")
def test_a_capture_that_fails_is_said_once_and_the_steps_are_the_same(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = make_classifier(corpus, tmp_path / "plain")
    refused = make_classifier(corpus, tmp_path / "refused")
    begin(plain, refused)

    def capture(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    with kernels("aten"):
        expected = take(plain, STEPS)
        record_graphs(monkeypatch, graphs)
        monkeypatch.setattr(graphs, "capture", capture)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger=graphs.__name__):
            assert take(refused, STEPS) == expected
    assert [record.getMessage() for record in caplog.records] == [
        "run.graphs: no CUDA graph is captured: operation not permitted when stream is capturing"
    ]


@pytest.mark.usefixtures("late")
def test_graphs_are_dropped_together_when_there_are_too_many_layouts(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_classifier(corpus, tmp_path / "plain")
    few = make_classifier(corpus, tmp_path / "few")
    begin(plain, few)
    with kernels("aten"):
        expected = take(plain, STEPS)
        found = record_graphs(monkeypatch, graphs)
        monkeypatch.setattr(graphs, "MAX_GRAPHS", 1)
        assert take(few, STEPS) == expected
    graph = few.gradients.graphs
    assert isinstance(graph, StepGraphs)
    assert len(graph._parts) == 1
    assert found


def test_a_copied_loop_has_its_own_memory(corpus: Path, tmp_path: Path) -> None:
    trainer = Trainer(small_recipe(corpus, "run.graphs=true"), tmp_path / "run")
    parts = parts_of(trainer)
    other = copy.deepcopy(trainer)
    expected = gradients(trainer, parts)
    again = gradients(other, parts)
    assert all(torch.equal(again[name], expected[name]) for name in expected)
    assert other.gradients.graphs is not None
    assert trainer.gradients.graphs is not None
    assert other.gradients.graphs.totals is not trainer.gradients.graphs.totals
