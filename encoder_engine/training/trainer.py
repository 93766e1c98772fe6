"""The training loop: exact sums over micro-batches and processes, exact resumption."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.data.loader import Loader, Position
from encoder_engine.errors import NonFiniteLossError
from encoder_engine.files import FolderLock, write_atomically, writing
from encoder_engine.training.average import Average
from encoder_engine.training.checkpoints import Checkpoints, begin_optimizers, named_state
from encoder_engine.training.curves import draw_curves
from encoder_engine.training.evaluation import Evaluation
from encoder_engine.training.feed import Feed, Meal
from encoder_engine.training.log import Log, Tracker, make_trackers, read_log
from encoder_engine.training.memory import recompute_blocks
from encoder_engine.training.model_builder import (
    build_model,
    build_objectives,
    build_text,
    save_model,
)
from encoder_engine.training.optim import make_optimizers, set_rate
from encoder_engine.training.plausibility import warn_of_divergence, warn_of_repetition
from encoder_engine.training.run_folder import begin, compare
from encoder_engine.training.schedule import rate_factor
from encoder_engine.training.work import operations_per_token
from encoder_engine.training.world import World, replicate, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from encoder_engine.objectives.objective import Inputs
    from encoder_engine.training.model_builder import Model
    from encoder_engine.training.recipe import Recipe

__all__ = ["Moment", "Trainer"]

# Float16's least normal number: a loss scaled by less than it has lost bits of its own.
LEAST_SCALE = 2.0**-14


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a run is at, for those who watch it. ``record``: as logged; ``speed``: as timed."""

    step: int
    steps: int
    record: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)


@dataclass
class _State:
    """Where a run is, beside weights and moments."""

    step: int = 0
    tokens: int = 0
    position: Position = field(default_factory=Position)
    log_bytes: int = 0


class Trainer:
    """Trains what a recipe says, in a folder where it goes on after whatever cut it off.

    The folder gets ``recipe.json``, ``corpus.sha256``, ``log.jsonl``, ``speed.jsonl``,
    ``checkpoints/``, ``curves.svg`` and, at the end, ``model/``.
    """

    def __init__(self, recipe: Recipe, directory: Path, *, world: World | None = None) -> None:
        run = recipe.run
        self.recipe, self.directory = recipe, directory
        self.world = World.join(run.device) if world is None else world
        if run.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        # One process of each machine compares the whole corpus: machines may have their own copies.
        with self.world.awaiting_first():
            self.text = build_text(recipe.data, seed=run.seed, verify=self.world.is_first_here)
        if self.world.is_first:
            warn_of_repetition(recipe, self.text)
        objectives = build_objectives(recipe.objectives, recipe.data, self.text.corpus)
        self.objectives = objectives
        self.model = self._build()
        self.model.to(self.world.device).train()
        if run.recompute:
            recompute_blocks(self.model.encoders)
        # Counted before weights are split between processes.
        self._operations = operations_per_token(self.model.encoders, recipe.data.max_length)
        self._computed = self._spread()
        if run.compile:
            for encoder in self.model.encoders:
                encoder.compile(dynamic=True)
        self.optimizers = make_optimizers(self.model, recipe.optimizer)
        self.average = None if run.ema is None else Average(self.model, run.ema)
        self.scaler = torch.amp.GradScaler(
            self.world.device.type, enabled=run.precision == "float16"
        )
        self.checkpoints = Checkpoints(
            directory / "checkpoints",
            self.world,
            keep_last=run.keep_last,
            keep_every=run.keep_every,
        )
        self._feed = Feed(
            self._loader(self.text.training, seed=run.seed, alpha=recipe.data.alpha),
            objectives,
            self.world,
            seed=run.seed,
            # While one thread compiles, torch tells all that they are being traced.
            workers=0 if run.compile else recipe.data.workers,
        )
        self.evaluation = None
        if len(self.text.held_out):
            # The same batches, hidden alike, for every run of the corpus, whatever its seed.
            self.evaluation = Evaluation(
                self._loader(self.text.held_out, seed=0, alpha=None),
                objectives,
                list(self.model.weights),
                self.world,
                num_tokens=run.evaluation_tokens,
            )

    def _build(self) -> Model:
        model = build_model(self.recipe, self.text.corpus, self.objectives)
        return model.double() if self.recipe.run.precision == "float64" else model

    def _loader(self, samples: Any, *, seed: int, alpha: float | None) -> Loader:
        tokens = self.recipe.batch.micro_tokens
        return Loader(samples=samples, batch_tokens=tokens, seed=seed, alpha=alpha)

    def _spread(self) -> nn.Module:
        """Let the processes train the one model together."""
        if self.world.size == 1:
            return self.model
        if self.recipe.run.sharding == "full":
            shard(self.model, self.model.encoders)
            return self.model
        return replicate(self.model, self.world)

    def run(self, watch: Callable[[Moment], None] | None = None) -> dict[str, float]:
        """Train to the end; return the last evaluation, or the last losses where there is none.

        ``watch`` is called after every step that is logged.

        Raises :class:`ResumeError` where the folder was begun by another recipe, and
        :class:`LockedError` where another run is at work in it.
        """
        with ExitStack() as held:
            with self.world.awaiting_first():
                if self.world.is_first:
                    with writing(self.directory):
                        self.directory.mkdir(parents=True, exist_ok=True)
                    held.enter_context(FolderLock(self.directory))
                    exported = (self.directory / "model").exists()
                    if not exported and not self.checkpoints.steps():
                        begin(self.directory, self.recipe, self.text.corpus)
                    compare(self.directory, self.recipe, self.text.corpus)
            if not self.world.is_first:
                compare(self.directory, self.recipe, self.text.corpus)
            return self._run(watch)

    def _run(self, watch: Callable[[Moment], None] | None) -> dict[str, float]:
        begin_optimizers(self.optimizers)
        state = self._resume()
        steps = self.recipe.run.steps
        record: dict[str, Any] = {}
        with ExitStack() as opened:
            log, trackers = self._open_logs(state, opened)
            for record, speed in self._steps(state):
                if log is not None:
                    log.add(record)
                    log.add_speed({"step": state.step, **speed})
                for tracker in trackers:
                    tracker.add(record)
                if watch is not None:
                    watch(Moment(step=state.step, steps=steps, record=record, speed=speed))
                if state.step % self.recipe.run.checkpoint_every == 0 or state.step == steps:
                    state.log_bytes = 0 if log is None else log.sync()
                    self._save(state)
        self._finish()
        if not record:
            # There was nothing left to do.
            record = self.world.told(read_log(self.directory)[-1] if self.world.is_first else None)
        scores: dict[str, float] = record.get("evaluation", record["losses"])
        if self.world.is_first:
            warn_of_divergence(scores, self.text.corpus.vocabulary.size)
        return scores

    def _open_logs(self, state: _State, opened: ExitStack) -> tuple[Log | None, list[Tracker]]:
        """Open what is told of steps, which the first process alone tells."""
        log = None
        trackers: list[Tracker] = []
        with self.world.awaiting_first():
            if self.world.is_first:
                log = Log(self.directory, num_bytes=state.log_bytes)
                opened.callback(log.close)
                names = self.recipe.run.trackers
                trackers = make_trackers(names, self.directory, first_step=state.step + 1)
                for tracker in trackers:
                    opened.callback(tracker.close)
        return log, trackers

    def _steps(self, state: _State) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
        """Take all steps that are left, moving ``state``; yield what is to be logged of some."""
        recipe, run = self.recipe, self.recipe.run
        meals = self._feed.meals(
            state.step,
            run.steps,
            state.position,
            lambda step: recipe.batch.num_micro_batches(step, run.steps),
        )
        began, waited, since = time.perf_counter(), 0.0, state.tokens
        for step in range(state.step, run.steps):
            asked = time.perf_counter()
            meal = next(meals)
            waited += time.perf_counter() - asked
            rate = recipe.optimizer.learning_rate * rate_factor(recipe.schedule, step, run.steps)
            computed = self._step(meal, step, rate)
            state.step, state.position = step + 1, meal.behind
            state.tokens += computed.pop("step_tokens")
            ends = state.step == run.steps
            evaluates = self.evaluation is not None and (
                state.step % run.evaluate_every == 0 or ends
            )
            saves = state.step % run.checkpoint_every == 0
            if not (ends or evaluates or saves or state.step % run.log_every == 0):
                continue
            record = {"step": state.step, "tokens": state.tokens, "rate": rate, **computed}
            seconds = max(time.perf_counter() - began, 1e-9)
            speed = {
                "seconds": seconds,
                "tokens_per_second": (state.tokens - since) / seconds,
                "data_wait": waited / seconds,
            }
            if run.peak_tflops is not None:
                most = run.peak_tflops * 1e12 * self.world.size
                speed["utilisation"] = speed["tokens_per_second"] * self._operations / most
            if evaluates:
                record["evaluation"] = self.evaluate()
            yield record, speed
            began, waited, since = time.perf_counter(), 0.0, state.tokens

    def _step(self, meal: Meal, step: int, rate: float) -> dict[str, Any]:
        """Take one step along the gradient of the mean over all micro-batches together."""
        names = list(self.model.weights)
        counted = meal.inputs[: meal.num_counted]
        counts = [self.model.counts(inputs) for inputs in counted]
        tokens = sum(inputs.batch.num_tokens for inputs in counted)
        sums = self.world.sums([tokens, *(sum(c[name] for c in counts) for name in names)])
        terms = dict(zip(names, sums[1:], strict=True))
        totals = torch.zeros(len(names), dtype=torch.float64, device=self.world.device)
        for place, inputs in enumerate(meal.inputs):
            # Dropout and samples follow from the micro-batch, so that nothing has to be remembered.
            number = place * self.world.size + self.world.rank
            drawn = np.random.SeedSequence((self.recipe.run.seed, step, number))
            torch.manual_seed(int(drawn.generate_state(1)[0]))
            with self._synchronised(place == len(meal.inputs) - 1), self._casting():
                loss, parts = self._loss(inputs, terms)
                if place >= meal.num_counted:
                    loss = loss * 0.0
                else:
                    totals += parts
                torch.autograd.backward(self.scaler.scale(loss))
        losses = self.world.sums(totals.tolist())
        means = {n: x / max(terms[n], 1.0) for n, x in zip(names, losses, strict=True)}
        whole = sum(self.model.weights[name] * mean for name, mean in means.items())
        _check_finite("the loss", whole, step)
        norm = self._gradient_norm()
        if not self.scaler.is_enabled():
            _check_finite("the gradient's norm", norm, step)
        taken = math.isfinite(norm)
        self._update(rate, finite=taken)
        if not taken and self.scaler.get_scale() < LEAST_SCALE:
            raise NonFiniteLossError(
                f"the gradient of step {step + 1} overflows float16 at a scale of {LEAST_SCALE:g}; "
                "begin again in another folder, with run.precision bfloat16 or float32, or a lower "
                "optimizer.learning_rate"
            )
        told = norm if taken else None
        return {"step_tokens": int(sums[0]), "loss": whole, "losses": means, "norm": told}

    def _loss(self, inputs: Inputs, terms: dict[str, float]) -> tuple[Tensor, Tensor]:
        """Return what is differentiated, and each loss' sum."""
        found = self._computed(inputs.to(self.world.device))
        # Averaged over processes by whoever adds gradients up, hence times their number.
        scale = {n: w * self.world.size / max(terms[n], 1.0) for n, w in self.model.weights.items()}
        loss = torch.stack([scale[name] * found[name].total for name in scale]).sum()
        return loss, torch.stack([found[name].total.detach().double() for name in scale])

    def _gradient_norm(self) -> float:
        """Clip the gradient; return what its norm was."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        limit = self.recipe.optimizer.clip_norm
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, float("inf") if limit is None else limit)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    def _update(self, rate: float, *, finite: bool) -> None:
        """Step, and forget the gradients; where they overflowed float16, no weight moves."""
        set_rate(self.optimizers, rate)
        for optimizer in self.optimizers:
            if finite:
                self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()
        if self.average is not None:
            self.average.follow(self.model)

    def _synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Let processes exchange gradients with a step's last micro-batch alone."""
        if self.world.size == 1:
            return nullcontext()
        if self.recipe.run.sharding == "full":
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
            return nullcontext()
        context: AbstractContextManager[Any] = (
            nullcontext() if last else self._computed.no_sync()  # type: ignore[operator]
        )
        return context

    def _casting(self) -> AbstractContextManager[Any]:
        precision = self.recipe.run.precision
        if precision not in ("bfloat16", "float16"):
            return nullcontext()
        return torch.autocast(self.world.device.type, dtype=getattr(torch, precision))

    def evaluate(self) -> dict[str, float]:
        """Evaluate the weights, or their average where there is one, on what was kept back."""
        assert self.evaluation is not None
        swapped = nullcontext() if self.average is None else self.average.in_place_of(self.model)
        with swapped, self._casting():
            try:
                return self.evaluation(self._computed)
            finally:
                if self.world.size > 1 and self.recipe.run.sharding == "full":
                    # With no backward pass behind it the outermost weights would stay whole.
                    self.model.reshard()  # type: ignore[operator]

    def _tensors(self) -> dict[str, Tensor]:
        tensors = named_state(self.model, self.optimizers)
        if self.average is not None:
            tensors |= self.average.tensors()
        return tensors

    def _save(self, state: _State) -> None:
        values = asdict(state) | {"scaler": self.scaler.state_dict(), "world": self.world.size}
        self.checkpoints.save(state.step, self._tensors(), values)

    def _resume(self) -> _State:
        """Go on from the last good checkpoint, if there is one."""
        found = self.checkpoints.find()
        if found is None:
            return _State()
        step, values = found
        self.checkpoints.load(step, self._tensors())
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(values["scaler"])
        return _State(
            step=values["step"],
            tokens=values["tokens"],
            position=Position(**values["position"]),
            log_bytes=values["log_bytes"],
        )

    def _finish(self) -> None:
        """Write the model and the curves."""
        swapped = nullcontext() if self.average is None else self.average.in_place_of(self.model)
        with swapped:
            self.export(self.directory / "model")
        with self.world.awaiting_first():
            if self.world.is_first:
                drawn = draw_curves(read_log(self.directory))
                write_atomically(self.directory / "curves.svg", drawn.encode())

    def export(self, directory: Path) -> None:
        """Write the model as transformers reads it, and the tokenizer; all processes take part."""
        model = self.model
        if self.recipe.run.sharding == "full" and self.world.size > 1:
            from torch.distributed.checkpoint.state_dict import (
                StateDictOptions,
                get_model_state_dict,
            )

            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            whole = get_model_state_dict(self.model, options=options)
            if self.world.is_first:
                model = self._build()
                model.load_state_dict(whole)
        with self.world.awaiting_first():
            if self.world.is_first:
                save_model(model, self.recipe.model, self.text.corpus, directory)


def _check_finite(what: str, value: float, step: int) -> None:
    if not math.isfinite(value):
        raise NonFiniteLossError(
            f"{what} is {value} at step {step + 1}, which is not taken; begin again in another "
            "folder, with a lower optimizer.learning_rate or optimizer.clip_norm, or a longer "
            "schedule.warmup"
        )
