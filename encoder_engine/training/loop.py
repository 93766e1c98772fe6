"""The training loop: exact gradients over micro-batches and processes, exact resumption.

How a step works, whatever the number of micro-batches and ranks:

1. The terms of each loss (hidden tokens, pairs, ...) are counted on the CPU before anything is
   computed, and summed over ranks in float64. They are the denominators of the step.
2. Each micro-batch's summed loss is divided by these denominators, not by its own count. The
   accumulated gradient is therefore that of the mean over all terms of the step. A mean of
   micro-batch means would weigh a term by the batch it happened to fall into.
3. DDP and FSDP average gradients over ranks; the loss is multiplied by their number beforehand.
   Gradients are exchanged once, with the last micro-batch. A micro-batch that only fills a rank up
   is multiplied by 0.
4. Dropout and sampling of micro-batch k are seeded by (seed, step, k): no generator's state is
   saved.
5. The gradient is clipped. A loss or norm that is not finite ends the run before the step. In
   float16 a norm that is not finite skips the step and lowers the scale instead, down to 2^-14.
6. On a GPU the host waits for nothing within a step. Batches are checked on the host, and copied
   from pinned memory. The losses and the norm are read once the next step is launched, and before
   anything is evaluated or saved. Until then a mark on the device keeps the optimizer from stepping
   where they are not finite. With other optimizers than AdamW, in float16 and with FSDP, the host
   reads them before the step.

A checkpoint holds weights, optimizer state, the average, the best weights, the step, the loader's
position and the length of ``log.jsonl``. A resumed run cuts the log back to that length and appends
the same bytes.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_engine.data.loader import Position
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import NonFiniteLossError
from encoder_engine.files import write_atomically
from encoder_engine.ops import cpu
from encoder_engine.records import locked_folder
from encoder_engine.training.average import Average
from encoder_engine.training.checkpoints import Checkpoints, begin_optimizers, named_state
from encoder_engine.training.curves import draw_losses
from encoder_engine.training.log import Log, Tracker, make_trackers, read_log
from encoder_engine.training.optim import (
    CLEAR_EVERY,
    clear_tiny_moments,
    clip_gradient,
    clip_unread,
    hold_learning_rates,
    make_optimizers,
    set_learning_rate,
)
from encoder_engine.training.precision import choose_precision
from encoder_engine.training.schedule import learning_rate_factor
from encoder_engine.training.speed import SpeedMeter, flops_per_token
from encoder_engine.training.step.gradients import Gradients
from encoder_engine.training.step.launched import (
    Halt,
    Launched,
    Numbers,
    can_read_late,
    check_finite,
    mean_losses,
)
from encoder_engine.training.world import World, replicate, shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from encoder_engine.models import Encoder
    from encoder_engine.models.training_model import TrainingModel
    from encoder_engine.training.course import Course, StepBatches

__all__ = ["Loop", "Progress"]

# Float16's least normal number: a loss scaled by less than it has lost bits of its own.
LEAST_SCALE = 2.0**-14


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A logged step of a run, as callbacks receive it.

    ``record``: the step's line of ``log.jsonl``; ``speed``: its line of ``speed.jsonl``.
    """

    step: int
    steps: int
    record: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)


@dataclass
class _State:
    """The state of a run besides weights and optimizer: step, data position, length of the log."""

    step: int = 0
    tokens: int = 0
    position: Position = field(default_factory=Position)
    log_bytes: int = 0


class Loop:
    """Trains the model of a :class:`Course`, in a folder from which an interrupted run resumes.

    The folder gets ``log.jsonl``, ``speed.jsonl``, ``checkpoints/`` and, at the end, ``curves.svg``
    and ``model/``; the course writes further files, such as the recipe.
    """

    def __init__(self, course: Course, directory: Path, *, world: World | None = None) -> None:
        run = course.run
        self.course, self.directory = course, directory
        self.world = World.join(run.device) if world is None else world
        course.settle_precision(*choose_precision(directory, self.world, run))
        run = course.run
        if run.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        # One process of each machine verifies the data: machines may have their own copies.
        with self.world.awaiting_first():
            course.read(verify=self.world.is_first_here)
        if self.world.is_first:
            course.warn()
        self.model = self._build()
        self.model.to(self.world.device).train()
        if run.recompute:
            _recompute_blocks(self.model.encoders)
        # Counted before FSDP shards the weights.
        self._flops = flops_per_token(self.model.encoders, course.max_length)
        self._computed = self._parallel()
        if run.compile:
            for encoder in self.model.encoders:
                encoder.compile(dynamic=True)
        self.optimizers = make_optimizers(self.model, course.optimizer, self.model.rate_factors)
        self.average = None if run.ema is None else Average(self.model, run.ema)
        self.scaler = torch.amp.GradScaler(
            self.world.device.type, enabled=run.precision == "float16"
        )
        sharded = self.world.size > 1 and run.sharding == "full"
        late = can_read_late(self.world.device, self.optimizers, self.scaler, sharded=sharded)
        self._halt = Halt(self.optimizers, self.world.device) if late else None
        self.gradients = Gradients(self.model, self._computed, self.world, run, self.scaler)
        self._graphs = self.gradients.graphs
        if self._graphs is not None and self._halt is not None:
            hold_learning_rates(self.optimizers)
        self.checkpoints = Checkpoints(
            directory / "checkpoints",
            self.world,
            keep_last=run.keep_last,
            keep_every=run.keep_every,
        )
        self.best = course.best(self.model)
        self._batch_stream = course.batch_stream(self.world)
        self.evaluation = course.evaluation(list(self.model.weights), self.world)

    def _build(self) -> TrainingModel:
        model = self.course.build_model()
        return model.double() if self.course.run.precision == "float64" else model

    def _parallel(self) -> nn.Module:
        """Return the model, wrapped by DDP or FSDP2 if several processes train it."""
        if self.world.size == 1:
            return self.model
        if self.course.run.sharding == "full":
            shard(self.model, self.model.encoders)
            return self.model
        return replicate(self.model, self.world)

    def run(self, watch: Callable[[Progress], None] | None = None) -> dict[str, float]:
        """Train to the end; return the last evaluation's scores, else the last step's losses.

        ``watch`` is called after every logged step.

        Raises :class:`ResumeError` if the folder was begun with another recipe or other data,
        :class:`LockedError` while another run writes to it, and :class:`NonFiniteLossError` for a
        loss or a gradient's norm that is NaN or infinite.
        """
        with ExitStack() as lock:
            lock.callback(cpu.release_kept_memory)
            with self.world.awaiting_first():
                if self.world.is_first:
                    lock.enter_context(locked_folder(self.directory))
                    exported = (self.directory / "model").exists()
                    if not exported and not self.checkpoints.steps():
                        self.course.begin(self.directory)
                    self.course.compare(self.directory)
            if not self.world.is_first:
                self.course.compare(self.directory)
            return self._run(watch)

    def _run(self, watch: Callable[[Progress], None] | None) -> dict[str, float]:
        begin_optimizers(self.optimizers)
        state = self._resume()
        steps = self.course.run.steps
        record: dict[str, Any] = {}
        with ExitStack() as opened:
            log, trackers = self._open_logs(state, opened)
            for record, speed in self._steps(state):
                if log is not None:
                    log.add(record)
                    log.add_speed({"step": record["step"], **speed})
                for tracker in trackers:
                    tracker.add(record)
                if watch is not None:
                    watch(Progress(step=record["step"], steps=steps, record=record, speed=speed))
                if record["step"] < state.step:
                    # The weights are those of a later step, whose numbers are not read yet.
                    continue
                ends = state.step == steps or self._stops
                if state.step % self.course.run.checkpoint_every == 0 or ends:
                    state.log_bytes = 0 if log is None else log.sync()
                    self._save(state)
        self._finish()
        if not record:
            # The run was finished before.
            last = read_log(self.directory)[-1] if self.world.is_first else None
            record = self.world.broadcast(last)
        scores: dict[str, float] = record.get("evaluation", record["losses"])
        if self.world.is_first:
            self.course.review(scores)
        return scores

    def _open_logs(self, state: _State, opened: ExitStack) -> tuple[Log | None, list[Tracker]]:
        """Open the log and the receivers of its records, such as TensorBoard; on rank 0 only.

        Other ranks get None and an empty list.
        """
        log = None
        trackers: list[Tracker] = []
        with self.world.awaiting_first():
            if self.world.is_first:
                log = Log(self.directory, num_bytes=state.log_bytes)
                opened.callback(log.close)
                names = self.course.run.trackers
                trackers = make_trackers(names, self.directory, first_step=state.step + 1)
                for tracker in trackers:
                    opened.callback(tracker.close)
        return log, trackers

    def _steps(self, state: _State) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
        """Take all remaining training steps; yield the two log records of each logged step.

        They are those of ``log.jsonl`` and ``speed.jsonl``. ``state`` is updated at each step:
        where losses are read late, it is already that of the next step when their record is
        yielded.
        """
        course, run = self.course, self.course.run
        stream = self._batch_stream.steps(
            state.step,
            run.steps,
            state.position,
            course.num_micro_batches,
        )
        peak = None if run.peak_tflops is None else run.peak_tflops * 1e12 * self.world.size
        share = None if peak is None else self._flops / peak
        meter = SpeedMeter(state.tokens, utilisation=share)
        launched: deque[tuple[Launched, dict[str, Any]]] = deque()
        for step in range(state.step, run.steps):
            if self._stops:
                return
            with meter.waiting():
                batches = next(stream)
            factor = learning_rate_factor(course.schedule, step, run.steps)
            learning_rate = course.optimizer.learning_rate * factor
            taken = self._launch(batches, step, learning_rate)
            state.step, state.position = step + 1, batches.next_position
            state.tokens += taken.tokens
            ends = state.step == run.steps
            evaluates = self.evaluation is not None and (
                state.step % run.evaluate_every == 0 or ends
            )
            saves = state.step % run.checkpoint_every == 0
            # The key "rate" of log.jsonl is a file format: it stays.
            begun = {"step": state.step, "tokens": state.tokens, "rate": learning_rate}
            launched.append((taken, begun))
            needs_all = self._halt is None or ends or evaluates or saves
            while len(launched) > (0 if needs_all else 1):
                taken, begun = launched.popleft()
                record = begun | taken.read(self.model.weights)
                is_last = not launched and needs_all
                logs = record["step"] % run.log_every == 0
                if not (logs or (is_last and (ends or evaluates or saves))):
                    continue
                speed = meter.read(record["tokens"])
                if is_last and evaluates:
                    record["evaluation"] = scores = self.evaluate()
                    if self.best is not None:
                        with self._averaged():
                            self.best.see(state.step, scores, self.model)
                yield record, speed
                meter.restart(record["tokens"])

    def _launch(self, batches: StepBatches, step: int, learning_rate: float) -> Launched:
        """Take one training step; its losses may not have been read yet when this returns.

        The gradient is that of each loss's mean over its terms in all micro-batches of the step.
        """
        names = list(self.model.weights)
        counted = batches.inputs[: batches.num_counted]
        counts = [self.model.counts(inputs) for inputs in counted]
        tokens = sum(inputs.batch.num_tokens for inputs in counted)
        sums = self.world.sums([tokens, *(sum(c[name] for c in counts) for name in names)])
        terms = dict(zip(names, sums[1:], strict=True))
        totals = self.gradients.add_up(batches, step, terms)
        numbers = self._take(totals, step, learning_rate, terms)
        if (step + 1) % CLEAR_EVERY == 0:
            clear_tiny_moments(self.optimizers)
        return Launched(step=step, tokens=int(sums[0]), terms=terms, numbers=numbers)

    def _take(
        self, totals: Tensor, step: int, learning_rate: float, terms: dict[str, float]
    ) -> Numbers | list[float]:
        """Clip the gradient and update the weights, unless the loss or the norm is not finite.

        totals: the sum of each loss over all ranks, float64 [losses]. Returns the totals, then the
        gradient's norm: numbers, or :class:`Numbers` if the host reads them after the next launch.
        Raises :class:`NonFiniteLossError` where the host reads the numbers here; in float16 a norm
        first lowers the scale.
        """
        set_learning_rate(self.optimizers, learning_rate)
        if self._halt is not None:
            compute = partial(self._take_unread, totals, self._halt)
            return Numbers(compute() if self._graphs is None else self._graphs.update(compute))
        sums: list[float] = totals.tolist()
        check_finite("the loss", mean_losses(self.model.weights, terms, sums)[0], step)
        whole = float(self._clip_gradient())
        finite = math.isfinite(whole)
        if not self.scaler.is_enabled():
            check_finite("the gradient's norm", whole, step)
        self._update(finite=finite)
        if not finite and self.scaler.get_scale() < LEAST_SCALE:
            raise NonFiniteLossError(
                f"the gradient of step {step + 1} overflows float16 at a scale of {LEAST_SCALE:g}; "
                "begin again in another folder, with run.precision bfloat16 or float32, or a lower "
                "optimizer.learning_rate"
            )
        return [*sums, whole]

    def _take_unread(self, totals: Tensor, halt: Halt) -> Tensor:
        """Clip the gradient and update the weights without waiting for the GPU.

        Returns the totals, followed by the gradient's norm, float64 [losses + 1].
        """
        norm = torch.as_tensor(self._clip_gradient(), device=totals.device).to(totals.dtype)
        numbers = torch.cat([totals, norm.reshape(1)])
        halt.see(numbers)
        self._update(finite=True)
        return numbers

    def _clip_gradient(self) -> Tensor | float:
        """Clip the gradient to the recipe's ``clip_norm``; return its norm before clipping."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        most = self.course.optimizer.clip_norm
        if self._halt is not None:
            return clip_unread(self.model.parameters(), most)
        return clip_gradient(self.model.parameters(), most, self.optimizers)

    def _update(self, *, finite: bool) -> None:
        """Update the weights if ``finite``, then loss scale and average; clear the gradients."""
        for optimizer in self.optimizers:
            if finite:
                self.scaler.step(optimizer)
            # CUDA graphs add to the gradients at fixed addresses: they are zeroed, not freed.
            optimizer.zero_grad(set_to_none=self._graphs is None)
        self.scaler.update()
        if self.average is not None:
            self.average.follow(self.model)

    def evaluate(self) -> dict[str, float]:
        """Return the scores of the weights or, with ``run.ema``, of their moving average.

        Products are in the weights' dtype, not under autocast: the scores are those of the
        exported model.
        """
        assert self.evaluation is not None
        with self._averaged():
            try:
                return self.evaluation(self._computed)
            finally:
                if self.world.size > 1 and self.course.run.sharding == "full":
                    # Without a backward pass the outermost weights would stay gathered.
                    self.model.reshard()  # type: ignore[operator]

    def _averaged(self) -> AbstractContextManager[None]:
        """Give the model its moving average within this context, if the run keeps one."""
        return nullcontext() if self.average is None else self.average.in_place_of(self.model)

    @property
    def _stops(self) -> bool:
        return self.best is not None and self.best.stops

    def _tensors(self) -> dict[str, Tensor]:
        tensors = named_state(self.model, self.optimizers)
        for kept in (self.average, self.best):
            if kept is not None:
                tensors |= kept.tensors()
        return tensors

    def _save(self, state: _State) -> None:
        values = asdict(state) | {"scaler": self.scaler.state_dict(), "world": self.world.size}
        if self.best is not None:
            values["best"] = self.best.values()
        self.checkpoints.save(state.step, self._tensors(), values)

    def _resume(self) -> _State:
        """Load the last undamaged checkpoint and return its state; without one, a new state."""
        found = self.checkpoints.find(self.course.run.steps)
        if found is None:
            return _State()
        step, values = found
        self.checkpoints.load(step, self._tensors())
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(values["scaler"])
        if self.best is not None:
            self.best.restore(values["best"])
        return _State(
            step=values["step"],
            tokens=values["tokens"],
            position=Position(**values["position"]),
            log_bytes=values["log_bytes"],
        )

    def _finish(self) -> None:
        """Write ``curves.svg`` and ``model/``: the best weights, else the averaged, or the last."""
        best = self.best if self.best is not None and self.best.step else None
        with self._averaged() if best is None else best.in_place_of(self.model):
            self.course.finish(self._computed)
            self.export(self.directory / "model")
        with self.world.awaiting_first():
            if self.world.is_first:
                drawn = draw_losses(read_log(self.directory))
                write_atomically(self.directory / "curves.svg", drawn.encode())

    def export(self, directory: Path) -> None:
        """Write the model with its present weights into a directory; every rank must call this."""
        model = self.model
        if self.course.run.sharding == "full" and self.world.size > 1:
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
                self.course.save_model(model, directory)


def _recompute_blocks(encoders: Sequence[Encoder]) -> None:
    """Make each block store only its input, and recompute its activations in the backward pass."""
    for encoder in encoders:
        for block in encoder.blocks:
            recomputed = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recomputed
