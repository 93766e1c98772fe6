"""Steps are exact, whoever computes them, and a run goes on bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.data.loader import Position
from encoder_engine.errors import CorruptCheckpointWarning
from encoder_engine.training import Trainer
from encoder_engine.training.course import StepBatches
from encoder_engine.training.log import read_log
from tests import ROOT
from tests.training.runs import CONFIG, run, small_recipe, take_step

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {**CONFIG, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer._tensors().items()}


def test_a_step_takes_the_gradient_of_the_mean_over_all_micro_batches(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [f"model.config.{name}=0.0" for name in PLAIN if "dropout" in name]
    settings += ["run.precision=float64", "optimizer.clip_norm=null", "data.form=pairs"]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "a")
    batches = trainer._batch_stream.steps(0, 1, Position(), lambda _step: 3)
    inputs = next(batches).inputs
    counts = [trainer.model.counts(i) for i in inputs]
    assert len({tuple(c.values()) for c in counts}) > 1
    whole = []
    for name, weight in trainer.model.weights.items():
        found = [trainer.model(i)[name] for i in inputs]
        whole.append(weight * sum(f.total for f in found) / sum(f.num_terms for f in found))
    parameters = dict(trainer.model.named_parameters())
    expected = torch.autograd.grad(torch.stack(whole).sum(), list(parameters.values()))
    kept: dict[str, torch.Tensor] = {}

    def keep() -> float:
        kept.update({n: p.grad.clone() for n, p in parameters.items() if p.grad is not None})
        return 0.0

    monkeypatch.setattr(trainer, "_clip_gradient", keep)
    # The last one counts for nothing, as where processes have unequal shares.
    taken = take_step(trainer, StepBatches([*inputs, inputs[0]], 3, Position()), 0, 0.1)
    assert taken["loss"] == pytest.approx(float(torch.stack(whole).sum().detach()), rel=1e-12)
    for name, gradient in zip(parameters, expected, strict=True):
        worst = float((kept[name] - gradient).abs().max())
        assert worst <= 1e-12 * max(float(gradient.abs().max()), 1.0), name


@pytest.mark.parametrize("workers", [0, 3])
def test_an_interrupted_run_goes_on_bit_for_bit(corpus: Path, tmp_path: Path, workers: int) -> None:
    settings = ["objectives.decoder_mask_probability=0.5"]
    settings = ["run.ema=0.9", "optimizer.name=stable_adamw"] if workers else settings
    whole = run(corpus, tmp_path / "whole", *settings)
    for stop in (3, 7, 12):
        run(corpus, tmp_path / "broken", *settings, stop_at=stop)
    broken = run(corpus, tmp_path / "broken", *settings)
    assert (tmp_path / "broken/log.jsonl").read_bytes() == (
        tmp_path / "whole/log.jsonl"
    ).read_bytes()
    expected, found = weights(whole), weights(broken)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    for name in ("model/model.safetensors", "curves.svg"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "</svg>" in (tmp_path / "whole/curves.svg").read_text()


def test_another_number_of_workers_computes_the_same(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "a", "data.workers=0")
    run(corpus, tmp_path / "b", "data.workers=3")
    assert (tmp_path / "a/log.jsonl").read_bytes() == (tmp_path / "b/log.jsonl").read_bytes()


def kill_at_random(corpus: Path, folder: Path, times: int, *settings: str, seed: int) -> int:
    """Start a run again and again, on 1 to 3 threads, kill it each time, and let it end.

    Returns how often it was killed.
    """
    generator = np.random.default_rng(seed)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.training.runs", str(corpus), str(folder), *settings]
    killed = 0
    for attempt in range(times):
        environment["OMP_NUM_THREADS"] = str(1 + attempt % 3)
        with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
            ends = time.monotonic() + 60
            # Importing is not what is to be interrupted.
            log = folder / "speed.jsonl"
            size = log.stat().st_size if log.exists() else -1
            while process.poll() is None and time.monotonic() < ends:
                if log.exists() and log.stat().st_size != size:
                    break
                time.sleep(0.002)
            time.sleep(float(generator.random()) * 0.25)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return killed


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_killed_at_any_time_the_log_is_the_same(corpus: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.runs", str(corpus), str(tmp_path / "whole")]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    assert kill_at_random(corpus, tmp_path / "broken", 3, seed=1) >= 1
    for name in ("log.jsonl", "model/model.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    "damage",
    ["torn", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("flipped", "lacking")),
     "unlisted"],
)  # fmt: skip
def test_a_torn_checkpoint_is_passed_over_with_a_message(
    corpus: Path, tmp_path: Path, damage: str
) -> None:
    run(corpus, tmp_path / "whole")
    run(corpus, tmp_path / "broken", stop_at=11)
    last = tmp_path / "broken/checkpoints/step-00000008"
    (data,) = last.glob("*.distcp")
    content = bytearray(data.read_bytes())
    if damage == "torn":
        data.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 3] ^= 4
        data.write_bytes(content)
    elif damage == "lacking":
        data.unlink()
    else:
        (last / "SHA256SUMS").unlink()
    with pytest.warns(CorruptCheckpointWarning, match="step-00000008 is skipped"):
        run(corpus, tmp_path / "broken")
    assert (tmp_path / "broken/log.jsonl").read_bytes() == (
        tmp_path / "whole/log.jsonl"
    ).read_bytes()


def test_the_model_loads_in_transformers_and_says_the_same(corpus: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model: Any = run(corpus, tmp_path / "a").model
    theirs: Any = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "a/model").eval()
    from encoder_engine.packing import pack

    ids = [[1, 20, 30, 3, 40, 2]]
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ids)).logits[0]
        found = model.eval().heads["mlm"](pack(ids))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        ["run.precision=bfloat16"],
        pytest.param(["run.precision=float16"], marks=pytest.mark.exhaustive),
        pytest.param(["run.recompute=true"], marks=pytest.mark.exhaustive),
        pytest.param(["data.form=pairs"], marks=pytest.mark.exhaustive),
        pytest.param(["data.form=swapped_pairs"], marks=pytest.mark.exhaustive),
        pytest.param(["data.form=blocks", "optimizer.name=lamb"], marks=pytest.mark.exhaustive),
        ["data.form=sentences", "objectives.unit=span", "objectives.span_boundary=true"],
        ["data.form=sentences", "objectives.decoder_mask_probability=0.5"],
        [
            "model.config.model_type=electra",
            "model.config.embedding_size=12",
            "objectives.generator.intermediate_size=8",
        ],
        ["objectives.unit=word", "objectives.random_tokens=unigram", "optimizer.name=muon"],
    ],
    ids=" ".join,
)
def test_every_way_to_train_lowers_the_loss(
    corpus: Path, tmp_path: Path, settings: list[str]
) -> None:
    losses: list[float] = []
    recipe = small_recipe(corpus, *settings, "run.steps=40", "run.checkpoint_every=40")
    evaluated = Trainer(recipe, tmp_path / "a").run(lambda m: losses.append(m.record["loss"]))
    assert np.mean(losses[-5:]) < losses[0]
    assert evaluated["pseudo_perplexity"] == pytest.approx(np.exp(evaluated["mlm_loss"]))
    assert 0.0 <= evaluated["mlm_accuracy"] <= 1.0


@pytest.mark.parametrize("form", ["full_sentences", "pairs", "swapped_pairs"])
def test_runs_of_all_seeds_are_evaluated_on_the_same_batches(
    form: str, corpus: Path, tmp_path: Path
) -> None:
    # Held-out pairs were drawn by the seed of the run.
    found = []
    for seed in (1, 2):
        recipe = small_recipe(corpus, f"data.form={form}", f"run.seed={seed}")
        evaluation: Any = Trainer(recipe, tmp_path / str(seed)).evaluation
        found.append([inputs for inputs, _ in evaluation._inputs()])
    assert len(found[0]) == len(found[1])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.batch.input_ids, other.batch.input_ids)
        assert one.targets.keys() == other.targets.keys()
        assert all(torch.equal(one.targets[name], other.targets[name]) for name in one.targets)


def test_an_evaluation_says_the_same_every_time(corpus: Path, tmp_path: Path) -> None:
    settings = ["model.config.model_type=electra", "model.config.embedding_size=12"]
    settings += ["objectives.generator.intermediate_size=8"]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    assert trainer.evaluate() == trainer.evaluate()


@pytest.mark.exhaustive
# What torch itself reads while it traces.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_what_is_compiled_has_the_same_losses(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traced and differentiated ahead as ever, with no compiler behind it.
    compile_module = torch.nn.Module.compile
    traced = []

    def trace(module: torch.nn.Module, **options: Any) -> None:
        traced.append(module)
        compile_module(module, backend="aot_eager", **options)

    monkeypatch.setattr(torch.nn.Module, "compile", trace)
    settings = [f"model.config.{name}=0.0" for name in PLAIN if "dropout" in name]
    settings += ["run.precision=float64", "run.steps=3", "run.deterministic=false"]
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    run(corpus, plain, *settings)
    assert not traced
    run(corpus, compiled, *settings, "run.compile=true")
    assert traced
    for one, other in zip(read_log(compiled), read_log(plain), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-12)


def test_what_is_recomputed_is_the_same(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "a")
    run(corpus, tmp_path / "b", "run.recompute=true")
    assert (tmp_path / "a/log.jsonl").read_bytes() == (tmp_path / "b/log.jsonl").read_bytes()
