"""The training loop: exact sums over micro-batches and processes, exact resumption."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from encoder_engine.data.loader import Loader, Position
from encoder_engine.errors import NonFiniteLossError, ResumeError
from encoder_engine.files import read_json, write_atomically
from encoder_engine.training.average import Average
from encoder_engine.training.building import build_model, build_objectives, build_text, save_model
from encoder_engine.training.checkpoints import Checkpoints, begin_optimizers, named_state
from encoder_engine.training.curves import draw_curves
from encoder_engine.training.evaluation import Evaluation
from encoder_engine.training.feed import Feed, Meal
from encoder_engine.training.log import Log, make_trackers, read_log
from encoder_engine.training.memory import recompute_blocks
from encoder_engine.training.optim import make_optimizers, set_rate
from encoder_engine.training.reading import recipe_to_values
from encoder_engine.training.schedule import rate_factor
from encoder_engine.training.work import operations_per_token
from encoder_engine.training.world import World, replicate, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from encoder_engine.objectives.objective import Inputs
    from encoder_engine.training.recipe import Recipe

__all__ = ["Moment", "Trainer"]

RECIPE = "recipe.json"
# What may differ when a run goes on: it changes neither the losses nor what they are of.
FREE = (
    "log_every",
    "peak_tflops",
    "checkpoint_every",
    "keep_last",
    "keep_every",
    "trackers",
    "device",
    "sharding",
)


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

    The folder gets ``recipe.json``, ``log.jsonl``, ``speed.jsonl``, ``checkpoints/``,
    ``curves.svg`` and, at the end, ``model/``. Raises :class:`ResumeError` where the folder was
    begun by another recipe.
    """

    def __init__(self, recipe: Recipe, directory: Path, *, world: World | None = None) -> None:
        run = recipe.run
        self.recipe, self.directory = recipe, directory
        self.world = World.join(run.device) if world is None else world
        if run.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self._claim()
        self.text = build_text(recipe.data, seed=run.seed)
        objectives = build_objectives(recipe.objectives, recipe.data, self.text.corpus)
        self.objectives = objectives
        self.model = build_model(recipe, self.text.corpus, objectives)
        if run.precision == "float64":
            self.model.double()
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
            # Another seed than the training's, and the same for every run of the corpus.
            self.evaluation = Evaluation(
                self._loader(self.text.held_out, seed=0, alpha=None),
                objectives,
                list(self.model.weights),
                self.world,
                num_tokens=run.evaluation_tokens,
            )

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

    def _claim(self) -> None:
        """Note the recipe, or compare it with the one the folder was begun with."""
        values = json.loads(json.dumps(recipe_to_values(self.recipe)))
        path = self.directory / RECIPE
        if self.world.is_first and not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())
        self.world.wait()
        changes = _changes(read_json(path, ResumeError), values)
        changes = [c for c in changes if c.split(" ")[0] not in {f"run.{name}" for name in FREE}]
        if changes:
            raise ResumeError(
                f"{self.directory} was begun by another recipe: {'; '.join(changes)}; name another "
                "folder, or go on with what it was begun with",
                changes=changes,
            )

    def run(self, watch: Callable[[Moment], None] = lambda _moment: None) -> dict[str, float]:
        """Train to the end; return the last evaluation, or the last losses where there is none."""
        begin_optimizers(self.optimizers)
        state = self._resume()
        log = None
        trackers = []
        if self.world.is_first:
            log = Log(self.directory, num_bytes=state.log_bytes)
            trackers = make_trackers(self.recipe.run.trackers, self.directory)
        last: dict[str, float] = {}
        try:
            for record, speed in self._steps(state):
                if log is not None:
                    log.add(record)
                    log.add_speed({"step": state.step, **speed})
                for tracker in trackers:
                    tracker.add(record)
                last = record.get("evaluation", record["losses"])
                steps = self.recipe.run.steps
                watch(Moment(step=state.step, steps=steps, record=record, speed=speed))
                if state.step % self.recipe.run.checkpoint_every == 0 or state.step == steps:
                    state.log_bytes = 0 if log is None else log.sync()
                    self._save(state)
        finally:
            if log is not None:
                log.close()
            for tracker in trackers:
                tracker.close()
        self._finish()
        return last

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
        # Dropout and samples follow from the step, so that nothing has to be remembered of them.
        places = np.random.SeedSequence((self.recipe.run.seed, step, self.world.rank))
        torch.manual_seed(int(places.generate_state(1)[0]))
        names = list(self.model.weights)
        counted = meal.inputs[: meal.num_counted]
        counts = [self.model.counts(inputs) for inputs in counted]
        tokens = sum(inputs.batch.num_tokens for inputs in counted)
        sums = self.world.sums([tokens, *(sum(c[name] for c in counts) for name in names)])
        terms = dict(zip(names, sums[1:], strict=True))
        totals = torch.zeros(len(names), dtype=torch.float64, device=self.world.device)
        for place, inputs in enumerate(meal.inputs):
            with self._synchronised(place == len(meal.inputs) - 1), self._casting():
                loss, parts = self._loss(inputs, terms)
                if place >= meal.num_counted:
                    loss = loss * 0.0
                else:
                    totals += parts
                torch.autograd.backward(self.scaler.scale(loss))
        norm = self._update(rate)
        losses = self.world.sums(totals.tolist())
        means = {n: x / max(terms[n], 1.0) for n, x in zip(names, losses, strict=True)}
        whole = sum(self.model.weights[name] * mean for name, mean in means.items())
        if not whole < float("inf"):
            raise NonFiniteLossError(
                f"the loss is {whole} at step {step + 1}; lower optimizer.learning_rate, or go on "
                "from the last checkpoint with another seed"
            )
        return {"step_tokens": int(sums[0]), "loss": whole, "losses": means, "norm": norm}

    def _loss(self, inputs: Inputs, terms: dict[str, float]) -> tuple[Tensor, Tensor]:
        """Return what is differentiated, and each loss' sum."""
        found = self._computed(inputs.to(self.world.device))
        # Averaged over processes by whoever adds gradients up, hence times their number.
        scale = {n: w * self.world.size / max(terms[n], 1.0) for n, w in self.model.weights.items()}
        loss = torch.stack([scale[name] * found[name].total for name in scale]).sum()
        return loss, torch.stack([found[name].total.detach().double() for name in scale])

    def _update(self, rate: float) -> float:
        """Clip, step, and forget the gradients; their norm."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        limit = self.recipe.optimizer.clip_norm
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, float("inf") if limit is None else limit)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        set_rate(self.optimizers, rate)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()
        if self.average is not None:
            self.average.follow(self.model)
        return float(norm)

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
            scores = self.evaluation(self._computed)
        if self.world.size > 1 and self.recipe.run.sharding == "full":
            # Without a backward pass behind it, the outermost weights would stay put together.
            self.model.reshard()  # type: ignore[operator]
        return scores

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
        if self.world.is_first:
            drawn = draw_curves(read_log(self.directory))
            write_atomically(self.directory / "curves.svg", drawn.encode())
        self.world.wait()

    def export(self, directory: Path) -> None:
        """Write the model as transformers reads it, and the tokenizer; all processes take part."""
        if self.recipe.run.sharding == "full" and self.world.size > 1:
            from torch.distributed.checkpoint.state_dict import (
                StateDictOptions,
                get_model_state_dict,
            )

            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            whole = get_model_state_dict(self.model, options=options)
            if self.world.is_first:
                plain = build_model(self.recipe, self.text.corpus, self.objectives)
                plain.load_state_dict(whole)
                save_model(plain, self.text.corpus, directory)
        elif self.world.is_first:
            save_model(self.model, self.text.corpus, directory)
        self.world.wait()


def _changes(before: Any, now: Any, where: str = "") -> list[str]:
    """Name what differs between two recipes, as ``batch.tokens was 1, is 2``."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [] if before == now else [f"{where} was {before!r}, is {now!r}"]
    found = []
    for key in sorted({*before, *now}):
        inner = f"{where}.{key}" if where else key
        found += _changes(before.get(key), now.get(key), inner)
    return found
