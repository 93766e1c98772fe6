"""Steps of fine-tuning on a CPU, compared with a loop over transformers' model.

All candidates have the same checkpoint, head, rows, order, learning rate and optimizer, and no
dropout. A call takes the steps of an epoch, collation included. The engine takes them by the loop
that users run, with its schedule, counts, checks and seeds; what a run loads and writes is not
timed. The peer pads to the longest row of a step; a second one sorts the rows of the call by length
first. Its loop does less than transformers' Trainer, which also logs and schedules. The gate
compares the losses of the first steps with those in float64.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks.jobs.training_step import LossesGate
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Work, ours
from benchmarks.peers import candidate
from benchmarks.peers.transformers import PEER
from benchmarks.texts.drawn import write_rows
from benchmarks.texts.vocabularies import MODEL_PACKAGE, minilm_missing
from encoder_engine import ops
from encoder_engine.errors import SuspiciousDataWarning
from encoder_engine.finetuning.data import TaskData, prepare_data
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.training.checkpoints import begin_optimizers
from encoder_engine.training.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from encoder_engine.finetuning.recipe import FineTuningRecipe
    from encoder_engine.packing.token_rows import TokenRows
    from encoder_engine.tasks.models.task_model import TaskModel

    Numbers = list[np.ndarray[Any, Any]]

EXAMPLES, STEPS, RATE = 32, 8, 1e-4
# In a quick run, where a padding loop takes two seconds a step.
QUICK_STEPS = 2
# Steps whose losses the gate compares.
COMPARED = 3
# Of training the head alone.
EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A set of labelled rows: the recipe to train by, and the set's name for ``write_rows``.

    ``settings``: changes of the recipe.
    """

    recipe: str
    drawn: str
    settings: tuple[str, ...] = ()


# Their licences keep the published rows out of the repository.
SETS = {name: Rows(recipe=name, drawn=name) for name in ("sst2", "mrpc", "cola", "stsb")}


def case_specs() -> list[CaseSpec]:
    """Return the case of each set of labelled rows, and that of training the head alone."""
    return [
        CaseSpec(
            name=f"finetuning/{name}",
            summary=f"{STEPS} steps ({QUICK_STEPS} in a quick run) of 32 rows as long as those of "
            f"{name}, MiniLM, float32",
            make=partial(make_case, rows),
            unavailable=minilm_missing,
        )
        for name, rows in SETS.items()
    ] + [
        CaseSpec(
            name="finetuning/frozen",
            summary=f"{EPOCHS} epochs of 256 rows as long as those of sst2, MiniLM frozen, float32",
            make=make_frozen_case,
            unavailable=minilm_missing,
        )
    ]


@dataclass(frozen=True, kw_only=True)
class Course:
    """The training that every candidate repeats: a model, a recipe, and the rows of one epoch.

    ``chosen``: the numbers, in the file of rows, of the rows in ``data``.
    ``cut``: for each step its rows, as indices in ``data``, in the order of the first epoch.
    """

    model: TaskModel
    data: TaskData
    recipe: FineTuningRecipe
    chosen: np.ndarray[Any, Any]
    cut: Numbers

    @property
    def places(self) -> np.ndarray[Any, Any]:
        """The places in ``data`` of all rows, in the order of the steps."""
        return np.concatenate(self.cut)

    def exact_losses(self) -> list[float]:
        """Compute the losses of the first steps in float64."""
        steps = min(COMPARED, len(self.cut))
        run = replace(self.recipe.run, precision="float64", epochs=None, steps=steps)
        with ops.use("reference"):
            return make_loop(self, replace(self.recipe, run=run)).take()

    def make_case(self, candidates: Sequence[Candidate], *, epochs: int = 1) -> Case:
        """Make the case; a call takes the steps of all rows, ``epochs`` times."""
        numbers = self.chosen[self.places].astype(np.int64)
        digest = self.data.train.sha256.encode() + numbers.tobytes()
        tokens = int(self.data.train_items.num_tokens.sum())
        return Case(
            candidates=tuple(candidates),
            gate=LossesGate(truth=self.exact_losses()),
            fingerprint=hashlib.sha256(digest).hexdigest()[:16],
            seed=0,
            amounts={"rows": epochs * len(numbers), "tokens": epochs * tokens},
        )


class StepsAlone(FineTuner):
    """The loop of fine-tuning; its :meth:`take` takes an epoch's steps and writes no files."""

    def take(self) -> list[float]:
        """Take all steps, beginning with the model's present weights, and return their losses.

        What is computed once for a run, such as a frozen encoder's outputs, is computed anew.
        """
        self._batch_stream = self.course.batch_stream(self.world)
        return [float(record["loss"]) for record, _ in self._steps(self._resume())]


def make_loop(course: Course, recipe: FineTuningRecipe) -> StepsAlone:
    """Make the training loop of a recipe on a course's rows, from the course's initial weights."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # There are no dev rows.
        warnings.simplefilter("ignore", SuspiciousDataWarning)
        loop = StepsAlone(recipe, Path(folder) / "run", data=course.data, world=World())
    begin_optimizers(loop.optimizers)
    return loop


def make_course(
    rows: Rows,
    options: Options,
    choose: Callable[[TaskData, np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None,
    *,
    epochs: int = 1,
) -> Course:
    """Draw labelled rows, make the initial model, and cut the rows into the steps of an epoch.

    ``choose``: maps all rows in a random order to those to train on, of which the first are taken.
    """
    examples, steps = EXAMPLES, QUICK_STEPS if options.quick else STEPS
    if options.smoke:
        examples, steps = 4, 1
    checkpoint = importlib.import_module(MODEL_PACKAGE).get_model_path()
    settings = [*rows.settings, "model.dropout=0", f"optimizer.learning_rate={RATE}"]
    # The peers' learning rate is constant.
    settings += ["schedule.name=constant", "schedule.warmup=0", f"batch.examples={examples}"]
    settings += ["run.device=cpu", "run.precision=float32", f"run.epochs={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        train = [str(write_rows(rows.drawn, Path(folder)))]
        recipe = find_recipe(rows.recipe, settings, checkpoint=str(checkpoint), train=train)
        data = prepare_data(recipe)
    model = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data.train_items), generator=generator).numpy()
    if choose is not None:
        order = choose(data, order)
    chosen = order[: examples * steps]
    # The order of the loop's first epoch.
    first = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0)).numpy()
    return Course(
        model=model,
        data=replace(data, train_items=data.train_items.take(chosen)),
        recipe=recipe,
        chosen=chosen,
        cut=np.split(first, steps),
    )


def make_case(rows: Rows, options: Options) -> Case:
    """Make the case of fine-tuning on a set of rows."""
    course = make_course(rows, options)
    places, lengths = course.places, course.data.train_items.num_tokens
    by_length = places[np.argsort(lengths[places], kind="stable")]
    grouped: Numbers = np.split(by_length, len(course.cut))
    theirs = partial(their_work, course)
    return course.make_case(
        [
            ours(partial(our_work, course)),
            candidate(PEER, partial(theirs, course.cut), name="transformers, a loop"),
            candidate(PEER, partial(theirs, grouped), name="transformers, rows sorted by length"),
        ],
    )


def make_frozen_case(options: Options) -> Case:
    """Make the case of training the head alone: the engine computes the encoder's outputs once."""
    rows = replace(SETS["sst2"], settings=("model.train=head",))
    course = make_course(rows, options, epochs=EPOCHS)
    theirs = partial(their_work, course, course.cut * EPOCHS)
    return course.make_case(
        [ours(partial(our_work, course)), candidate(PEER, theirs, name="transformers, a loop")],
        epochs=EPOCHS,
    )


def our_work(course: Course) -> Work:
    """Return an engine call that takes all steps, and one for the gate that takes an epoch's."""
    epoch = replace(course.recipe, run=replace(course.recipe.run, epochs=1))
    return make_work(
        lambda: make_loop(course, course.recipe).take, lambda: make_loop(course, epoch).take
    )


def their_work(course: Course, timed: Numbers) -> Work:
    """Return a call of transformers' model that takes the steps ``timed``, and one for the gate.

    Encoders frozen in the engine's model are frozen in it too.
    """
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    data, items = course.data, course.data.train_items
    frozen = {n for n, p in course.model.encoder.named_parameters() if not p.requires_grad}

    def take(parts: Numbers) -> Callable[[], list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            course.model.save_pretrained(folder)
            theirs: Any = AutoModelForSequenceClassification.from_pretrained(
                folder, attn_implementation="sdpa"
            )
        theirs.train()
        if frozen:
            theirs.bert.embeddings.requires_grad_(False)
            theirs.bert.encoder.requires_grad_(False)
        rows = [padded(items.rows.take(numbers)) for numbers in parts]
        targets = [torch.from_numpy(items.column("target")[numbers]) for numbers in parts]
        regression = data.task.name == "regression"

        def losses() -> Iterator[torch.Tensor]:
            for inputs, target in zip(rows, targets, strict=True):
                logits = theirs(**inputs).logits
                if regression:
                    yield F.mse_loss(logits.squeeze(1), target.to(logits.dtype))
                else:
                    yield F.cross_entropy(logits, target)

        return plain_loop(theirs, losses)

    return make_work(lambda: take(timed), lambda: take(course.cut))


def plain_loop(
    model: nn.Module, losses: Callable[[], Iterator[torch.Tensor]]
) -> Callable[[], list[float]]:
    """Return a call that takes an AdamW step for each loss, as the engine's recipe does."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": 0.01},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8, fused=True)

    def steps() -> list[float]:
        found = []
        for loss in losses():
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found.append(float(loss.detach()))
        return found

    return steps


def padded(rows: TokenRows) -> dict[str, torch.Tensor]:
    """Return token rows as transformers' padded inputs, as wide as the longest row."""
    lengths = torch.from_numpy(np.asarray(rows.lengths)).long()
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    found = {"attention_mask": mask.long()}
    columns = {"input_ids": rows.ids, "token_type_ids": rows.type_ids}
    for name, values in columns.items():
        if values is not None:
            found[name] = torch.zeros(mask.shape, dtype=torch.int64)
            found[name][mask] = torch.from_numpy(values).long()
    return found


def make_work(
    make: Callable[[], Callable[[], list[float]]],
    compared: Callable[[], Callable[[], list[float]]] | None = None,
) -> Work:
    """Return the call to time, and for the gate the first losses of another one from the start.

    ``make``: loads the model and returns a call, which takes steps and returns their losses.
    ``compared``: makes the call for the gate; None: ``make``.
    """
    steps = make()
    return Work(call=steps, answer=lambda: (compared or make)()()[:COMPARED])
