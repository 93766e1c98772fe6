"""A recipe: all that a pretraining run is, as values that say what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - read when recipes are made of files
from dataclasses import dataclass, field
from typing import Any, Literal

from encoder_engine.errors import ConfigError

__all__ = [
    "BatchRecipe",
    "DataRecipe",
    "ModelRecipe",
    "ObjectivesRecipe",
    "OptimizerRecipe",
    "Recipe",
    "RunRecipe",
    "ScheduleRecipe",
]

Form = Literal["blocks", "sentences", "full_sentences", "pairs", "swapped_pairs"]


def _at_least(what: str, value: float | None, least: float) -> None:
    # Written so that NaN, which YAML can say, is none of it.
    if value is not None and not least <= value < math.inf:
        raise ConfigError(f"{what} must be at least {least:g} and finite, got {value:g}")


def _above_zero(what: str, value: float | None) -> None:
    if value is not None and not 0.0 < value < math.inf:
        raise ConfigError(f"{what} must be above 0 and finite, got {value:g}")


def _share(what: str, value: float | None) -> None:
    if value is not None and not 0.0 <= value <= 1.0:
        raise ConfigError(f"{what} must be from 0 to 1, got {value:g}")


def _share_below_one(what: str, value: float | None) -> None:
    if value is not None and not 0.0 <= value < 1.0:
        raise ConfigError(f"{what} must be at least 0 and below 1, got {value:g}")


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """What is trained.

    ``config``: a config.json as values, without ``vocab_size`` and ``pad_token_id``, which are the
    corpus'; weights are drawn. Or ``checkpoint``: a directory or hub id whose training goes on; its
    tokenizer must be the corpus', which may have more tokens behind its last one: their embeddings
    are made of the pieces that the checkpoint's own tokenizer cuts them into.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        if bool(self.config) == (self.checkpoint is not None):
            raise ConfigError("model needs a config, or a checkpoint to go on from, and not both")


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """What is read, and cut how.

    ``corpus``: a folder that ``encoder-engine prepare`` wrote. ``form``: ``"blocks"`` of exactly
    ``max_length`` tokens across documents, cut wherever that is; ``"sentences"``, whole ones of a
    document; ``"full_sentences"``, whole ones across documents; ``"pairs"`` of segments for next
    sentence prediction, or ``"swapped_pairs"`` for their order. ``held_out``: the share of
    sequences kept back to evaluate on, runs of neighbours drawn from all of the corpus. ``alpha``:
    how languages are sampled; None: as the text is. ``workers``: threads that make batches ahead;
    0: none.
    """

    corpus: str = ""
    max_length: int = 128
    form: Form = "full_sentences"
    held_out: float = 0.01
    alpha: float | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        _at_least("data.max_length", self.max_length, 3)
        _at_least("data.workers", self.workers, 0)
        _share_below_one("data.held_out", self.held_out)
        _share("data.alpha", self.alpha)


@dataclass(frozen=True, kw_only=True)
class ObjectivesRecipe:
    """What the model learns to do.

    Masked language modelling in any case: ``rate``, ``unit``, ``mask_share``, ``random_share`` and
    ``random_tokens`` say how tokens are hidden. Pairs of segments are told apart where ``data`` has
    them. ``span_boundary``: spans are told from their neighbours as well. ``generator``: what
    differs from the model's config in a generator, whose samples the model tells from the text
    (ELECTRA), with ``generator_weight`` of its own loss and ``detection_weight`` of the model's.
    ``teacher``: a checkpoint whose predictions, at a ``temperature``, and last hidden state the
    model follows (DistilBERT). ``label_smoothing``: of masked language modelling alone, and refused
    beside ``span_boundary``, a generator or a teacher.
    """

    rate: float = 0.15
    unit: Literal["token", "word", "span"] = "token"
    mask_share: float = 0.8
    random_share: float = 0.1
    random_tokens: Literal["uniform", "unigram"] = "uniform"
    label_smoothing: float = 0.0
    span_boundary: bool = False
    generator: Mapping[str, Any] = field(default_factory=dict)
    generator_weight: float = 1.0
    detection_weight: float = 50.0
    teacher: str | None = None
    temperature: float = 2.0
    soft_weight: float = 5.0
    hard_weight: float = 2.0
    cosine_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.span_boundary and self.unit != "span":
            raise ConfigError("objectives.span_boundary needs objectives.unit: span")
        if self.generator and self.teacher is not None:
            raise ConfigError("objectives name a generator and a teacher; choose one")
        if self.label_smoothing and (self.generator or self.teacher or self.span_boundary):
            raise ConfigError(
                "objectives.label_smoothing is of masked tokens alone; leave it out with a "
                "generator, a teacher or span_boundary"
            )
        _share_below_one("objectives.label_smoothing", self.label_smoothing)
        _above_zero("objectives.temperature", self.temperature)
        for name in ("generator", "detection", "soft", "hard", "cosine"):
            _at_least(f"objectives.{name}_weight", getattr(self, f"{name}_weight"), 0)


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """AdamW, or another, with decoupled weight decay of all matrices and tables.

    ``clip_norm``: the gradient's norm is held to it; None: it is not. ``muon``: matrices of the
    blocks by Muon, the rest by AdamW.
    """

    name: Literal["adamw", "stable_adamw", "lamb", "muon"] = "adamw"
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0

    def __post_init__(self) -> None:
        _at_least("optimizer.learning_rate", self.learning_rate, 0)
        _at_least("optimizer.weight_decay", self.weight_decay, 0)
        for place, beta in enumerate(self.betas):
            _share_below_one(f"optimizer.betas[{place}]", beta)
        _above_zero("optimizer.epsilon", self.epsilon)
        _above_zero("optimizer.clip_norm", self.clip_norm)


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """How the learning rate rises over ``warmup`` and falls to ``final`` of its peak at the end.

    Both are shares, of all steps and of the peak. ``"stable"``: it falls over the last ``decay`` of
    the steps alone, as one less the square root of the way (warm-up, stable, decay).
    """

    name: Literal["linear", "cosine", "stable", "constant"] = "linear"
    warmup: float = 0.06
    decay: float = 0.1
    final: float = 0.0

    def __post_init__(self) -> None:
        for name in ("warmup", "decay", "final"):
            _share(f"schedule.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class BatchRecipe:
    """Tokens of a step, and how many are computed at a time.

    Every step is a whole number of micro-batches of ``micro_tokens``, whoever computes them. Over
    the first ``warmup`` of all steps their number rises from that of ``first_tokens``.
    """

    tokens: int = 8192
    micro_tokens: int = 8192
    first_tokens: int | None = None
    warmup: float = 0.0

    def __post_init__(self) -> None:
        _at_least("batch.micro_tokens", self.micro_tokens, 3)
        _share("batch.warmup", self.warmup)
        for name in ("tokens", "first_tokens"):
            value = getattr(self, name)
            if value is not None and (value < self.micro_tokens or value % self.micro_tokens):
                raise ConfigError(
                    f"batch.{name} is {value}; it must be a multiple of batch.micro_tokens, "
                    f"{self.micro_tokens}"
                )

    def num_micro_batches(self, step: int, steps: int) -> int:
        """Count the micro-batches of a step, from 0."""
        last = self.tokens // self.micro_tokens
        rising = self.warmup * steps
        if self.first_tokens is None or step >= rising:
            return last
        first = self.first_tokens // self.micro_tokens
        return first + int((last - first) * step / rising)


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """How long, how exactly, and what is kept.

    ``precision``: matrix products in that type, weights in float32. ``deterministic``: only
    operations that give the same bits every time. ``peak_tflops``: what the machine does at most in
    that precision, each process; with it, the share of it that is used is told. ``recompute``:
    blocks keep their input alone and compute again in backward. ``ema``: the decay of an average of
    the weights, which is evaluated and exported; None: no average. ``sharding``: between processes,
    ``"none"`` (DDP) or ``"full"`` (FSDP2). ``keep_last`` checkpoints are kept, and every one at a
    multiple of ``keep_every``.
    """

    steps: int = 1000
    seed: int = 0
    device: str = "auto"
    precision: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    deterministic: bool = False
    compile: bool = False
    peak_tflops: float | None = None
    recompute: bool = False
    ema: float | None = None
    sharding: Literal["none", "full"] = "none"
    log_every: int = 1
    evaluate_every: int = 100
    evaluation_tokens: int = 100_000
    checkpoint_every: int = 100
    keep_last: int = 2
    keep_every: int | None = None
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()

    def __post_init__(self) -> None:
        every = ("log_every", "evaluate_every", "checkpoint_every", "keep_every")
        for name in ("steps", "evaluation_tokens", "keep_last", *every):
            _at_least(f"run.{name}", getattr(self, name), 1)
        _at_least("run.seed", self.seed, 0)
        _above_zero("run.peak_tflops", self.peak_tflops)
        _share_below_one("run.ema", self.ema)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole pretraining run."""

    model: ModelRecipe
    data: DataRecipe = field(default_factory=DataRecipe)
    objectives: ObjectivesRecipe = field(default_factory=ObjectivesRecipe)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    batch: BatchRecipe = field(default_factory=BatchRecipe)
    run: RunRecipe = field(default_factory=RunRecipe)
