"""The settings of a pretraining run, as dataclasses that check their values."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - read when recipes are made of files
from dataclasses import field
from typing import Any, Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError

__all__ = [
    "BatchRecipe",
    "DataRecipe",
    "ModelRecipe",
    "ObjectivesRecipe",
    "OptimizerRecipe",
    "Precision",
    "RunRecipe",
    "ScheduleRecipe",
    "TrainingRecipe",
]

Precision = Literal["float32", "bfloat16", "float16", "float64"]
# The dtypes of the residual stream.
Residual = Literal["float32", "bfloat16"]
Form = Literal["blocks", "sentences", "full_sentences", "pairs", "swapped_pairs"]


def _at_least(what: str, value: float | None, least: float) -> None:
    # NaN, which YAML can express, fails this comparison too.
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
    """The model: a ``config`` with random weights, or a ``checkpoint``.

    ``config``: the values of a config.json, without ``vocab_size`` and ``pad_token_id``, which the
    corpus sets.
    ``checkpoint``: a directory or hub id to continue training from. The corpus' vocabulary must
    begin with the checkpoint's; a further token is tokenized into these, and gets the mean of their
    embeddings.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        if bool(self.config) == (self.checkpoint is not None):
            raise ConfigError("model needs either a config or a checkpoint to continue from")


@dataclass(frozen=True, kw_only=True)
class DataRecipe:
    """The corpus, and how it is cut into sequences.

    ``corpus``: a folder that ``encoder-engine prepare`` wrote.
    ``max_length``: tokens of a sequence, special ones included.
    ``form``: ``"blocks"`` of ``max_length`` tokens (the last of a shard may be shorter), across
    sentences and documents;
    ``"sentences"``: whole sentences of one document; ``"full_sentences"``: whole sentences across
    documents; ``"pairs"`` of segments for next sentence prediction; ``"swapped_pairs"`` for
    sentence order prediction.
    ``held_out``: the share of sequences for evaluation, drawn as runs of neighbouring sequences.
    ``alpha``: the exponent by which languages are sampled; None: in proportion to their text.
    ``workers``: threads that prepare batches ahead; 0: none.
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
    """The training objectives: masked language modelling, and further objectives.

    NSP or SOP is added where ``data.form`` has pairs.

    ``mask_probability``: the share of tokens to predict.
    ``unit``: the unit of masking: tokens, whole words, spans, or the salient spans that
    ``prepare --salient`` marked, and other spans where these do not suffice.
    ``mask_share``, ``random_share``: the shares of the tokens to predict that are replaced by
    [MASK] and by random tokens.
    ``random_tokens``: random tokens are drawn uniformly, or by their frequency in the corpus.
    ``label_smoothing``: only for masked language modelling; refused with the options below.
    ``span_boundary``: adds the span boundary objective (SpanBERT); needs ``unit="span"`` or
    ``"salient"``.
    ``decoder_mask_probability``: adds RetroMAE's decoder, whose rows cannot attend to this share of
    the tokens; its loss is weighted by ``decoder_weight``.
    ``generator``: the keys of the model's config that differ in ELECTRA's generator; the losses are
    weighted by ``generator_weight`` and ``detection_weight``.
    ``teacher``: a checkpoint to distil from (DistilBERT), with logits at ``temperature``; the
    losses are weighted by ``soft_weight``, ``hard_weight`` and ``cosine_weight``.
    """

    mask_probability: float = 0.15
    unit: Literal["token", "word", "span", "salient"] = "token"
    mask_share: float = 0.8
    random_share: float = 0.1
    random_tokens: Literal["uniform", "unigram"] = "uniform"
    label_smoothing: float = 0.0
    span_boundary: bool = False
    decoder_mask_probability: float | None = None
    decoder_weight: float = 1.0
    generator: Mapping[str, Any] = field(default_factory=dict)
    generator_weight: float = 1.0
    detection_weight: float = 50.0
    teacher: str | None = None
    temperature: float = 2.0
    soft_weight: float = 5.0
    hard_weight: float = 2.0
    cosine_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.span_boundary and self.unit not in ("span", "salient"):
            raise ConfigError("objectives.span_boundary needs objectives.unit: span, or salient")
        if self.generator and self.teacher is not None:
            raise ConfigError("objectives name a generator and a teacher; choose one")
        added = self.generator or self.teacher or self.span_boundary
        if self.label_smoothing and (added or self.decoder_mask_probability is not None):
            raise ConfigError(
                "objectives.label_smoothing is for masked language modelling alone; leave it out "
                "with a generator, a teacher, a decoder or span_boundary"
            )
        _share("objectives.decoder_mask_probability", self.decoder_mask_probability)
        _share_below_one("objectives.label_smoothing", self.label_smoothing)
        _above_zero("objectives.temperature", self.temperature)
        for name in ("decoder", "generator", "detection", "soft", "hard", "cosine"):
            _at_least(f"objectives.{name}_weight", getattr(self, f"{name}_weight"), 0)


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """The optimizer, with decoupled weight decay of matrices and embedding tables.

    ``name``: ``"muon"`` trains the blocks' matrices by Muon, and the rest by AdamW.
    ``clip_norm``: the norm to which the gradient is clipped; None: no clipping.
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
    """The schedule of the learning rate: linear warm-up, then decay.

    ``name``: the shape of the decay; ``"stable"``: constant, then ``1 - sqrt`` over the last steps
    (warm-up, stable, decay).
    ``warmup``: the share of all steps over which the learning rate rises.
    ``decay``: the share of all steps over which ``"stable"`` decays.
    ``final``: the learning rate at the end, as a share of the peak.
    ``from_zero``: start at learning rate 0 and round the warm-up to whole steps, as in
    transformers; otherwise the first step already changes the weights.
    """

    name: Literal["linear", "cosine", "stable", "constant"] = "linear"
    warmup: float = 0.06
    decay: float = 0.1
    final: float = 0.0
    from_zero: bool = False

    def __post_init__(self) -> None:
        for name in ("warmup", "decay", "final"):
            _share(f"schedule.{name}", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class BatchRecipe:
    """The batch size, in tokens.

    ``tokens``: the most tokens of a step, over all processes; a multiple of ``micro_tokens``.
    ``micro_tokens``: the most tokens of a micro-batch, which one process computes at a time.
    ``first_tokens``: the most tokens of the first step; None: ``tokens``.
    ``warmup``: the share of all steps over which the batch grows from ``first_tokens``.
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
        """Return the number of micro-batches of a step, from 0, over all processes.

        ``steps``: the number of steps of the run.
        """
        last = self.tokens // self.micro_tokens
        rising = self.warmup * steps
        if self.first_tokens is None or step >= rising:
            return last
        first = self.first_tokens // self.micro_tokens
        return first + int((last - first) * step / rising)


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """Length, precision, devices, evaluation, logging and checkpoints of a run.

    ``precision``: the type of matrix products; weights stay in float32 (``"float64"``: both).
    None: as in the run that is resumed; in a new run bfloat16 on a GPU that has it, and on a CPU
    with AMX or AMD's AVX-512 BF16, else float32. Evaluations compute in the weights' dtype.
    ``residual``: the type of the residual stream, where ``precision`` is bfloat16; None: as in the
    run that is resumed; in a new run bfloat16 on a GPU, where norms are bound by memory, else
    float32.
    ``deterministic``: only operations with bit-reproducible results.
    ``compile``: compile the encoders by torch.compile.
    ``peak_tflops``: peak TFLOP/s of each process' device in that precision; MFU is logged with it.
    ``graphs``: compute micro-batches of up to 32,768 tokens, and the update, by CUDA graphs; if
    graphs are impossible, a log record says why.
    ``recompute``: activation checkpointing: blocks store their input and recompute the rest.
    ``ema``: the decay of an exponential moving average of the weights, which is evaluated and
    exported; None: no average.
    ``sharding``: ``"none"`` (DDP) or ``"full"`` (FSDP2).
    ``log_every``, ``evaluate_every``, ``checkpoint_every``: intervals in steps.
    ``evaluation_tokens``: held-out tokens of an evaluation, rounded up to whole batches.
    ``keep_last``: the number of latest checkpoints to keep; those at multiples of ``keep_every``
    are kept too.
    """

    steps: int = 1000
    seed: int = 0
    device: str = "auto"
    precision: Precision | None = None
    residual: Residual | None = None
    deterministic: bool = False
    compile: bool = False
    graphs: bool = False
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
        if self.residual is not None and self.precision not in (None, "bfloat16"):
            raise ConfigError(
                f"run.residual is {self.residual}, which is for products in bfloat16, and this run "
                f"computes them in {self.precision}; leave it out, or set run.precision to bfloat16"
            )
        _above_zero("run.peak_tflops", self.peak_tflops)
        _share_below_one("run.ema", self.ema)


@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """All settings of a pretraining run."""

    model: ModelRecipe
    data: DataRecipe = field(default_factory=DataRecipe)
    objectives: ObjectivesRecipe = field(default_factory=ObjectivesRecipe)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    batch: BatchRecipe = field(default_factory=BatchRecipe)
    run: RunRecipe = field(default_factory=RunRecipe)
