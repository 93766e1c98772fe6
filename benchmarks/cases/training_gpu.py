"""Training steps on a GPU in bfloat16: pretraining and fine-tuning, beside transformers.

All have the same model, weights, sequences, targets and optimizer, and no dropout. A call takes a
few steps, because a loop that reads no loss in between launches a step while the one before is
computed. The gate compares the losses before the first step and after it with those in float64.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
import torch

from benchmarks.cases.encoder import BASE, LARGE, TINY
from benchmarks.cases.pretraining import (
    BY_HAND,
    NO_DROPOUT,
    NUM_PARTS,
    PART_TOKENS,
    SEED,
    Size,
    count_operations,
    cut,
    draw_batch,
    fingerprint,
    make_model,
)
from benchmarks.jobs.training_step import make_gate, make_step, make_work
from benchmarks.jobs.transformers_step import Way, make_their_step
from benchmarks.measuring.case import Case, CaseSpec, Options, Work, ours
from benchmarks.measuring.ceilings import product_ceiling
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.training_model import Inputs
from encoder_engine.objectives.objective import prepare
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from encoder_engine.models.training_model import TrainingModel
    from encoder_engine.packing.clean import CleanBatch
    from encoder_engine.training.recipe import Residual

PRECISION = "bfloat16"
STEPS = 2
LABELS = ("negative", "positive")
# ModernBERT-base as published.
MODERNBERT: dict[str, Any] = {
    "model_type": "modernbert",
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "pad_token_id": 0,
}
SMOKE_MODERNBERT = (
    MODERNBERT
    | {key: TINY[key] for key in ("vocab_size", "hidden_size", "intermediate_size")}
    | {"num_hidden_layers": 3, "num_attention_heads": 2, "local_attention": 8}
)
LARGE_WAYS = {"transformers, masked rows": Way(masked_rows=True), **BY_HAND}
BASE_WAYS = {"transformers": Way(), "transformers, compiled": Way(compiled=True), **BY_HAND}
MODERNBERT_WAYS = {
    "transformers, packed": Way(masked_rows=True, packed=True),
    "transformers, packed, compiled": Way(masked_rows=True, packed=True, compiled=True),
    "transformers, compiled, masked rows": Way(masked_rows=True, compiled=True),
}
CLASSIFIER = Way(auto="AutoModelForSequenceClassification")
CLASSIFIER_WAYS = {
    "transformers": CLASSIFIER,
    "transformers, compiled": replace(CLASSIFIER, compiled=True),
    "transformers, compiled, CUDA graphs": replace(CLASSIFIER, compiled=True, graphs=True),
}
# Models with their longest sequences, and transformers' ways with them.
MODELS = {
    "base": (BASE | NO_DROPOUT, 512, BASE_WAYS),
    "large": (LARGE | NO_DROPOUT, 512, LARGE_WAYS),
    "modernbert": (MODERNBERT, 1024, MODERNBERT_WAYS),
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way in which the engine takes a training step.

    ``graphs``: by CUDA graphs.
    ``residual``: the type of the residual stream; None: the usual one.
    ``within``: makes a context that steps are taken in.
    ``why_not``: maps a device to the reason why it cannot take such steps, or None.
    """

    graphs: bool = False
    residual: Residual | None = None
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    why_not: Callable[[str], str | None] = lambda _: None


USUAL = {"encoder-engine": Variant()}
BY_GRAPHS = USUAL | {"encoder-engine, CUDA graphs": Variant(graphs=True)}


@dataclass(frozen=True, kw_only=True)
class Training:
    """A case: model and batch, transformers' ways to take a step, and the engine's (``ours``).

    ``classifies``: classify sequences; else predict masked tokens.
    """

    size: Size
    ways: Mapping[str, Way]
    classifies: bool = False
    ours: Mapping[str, Variant] = field(default_factory=lambda: USUAL)


def mixed_lengths(longest: int, tokens: int) -> tuple[int, ...]:
    """Draw log-uniform lengths between an eighth of ``longest`` and ``longest``; sum: ``tokens``.

    The last one is what is left, and may be shorter.
    """
    generator = np.random.default_rng(SEED)
    low, high = np.log(longest / 8), np.log(longest)
    lengths: list[int] = []
    while (left := tokens - sum(lengths)) > longest:
        lengths.append(round(float(np.exp(generator.uniform(low, high)))))
    return (*lengths, left)


def _trainings() -> Iterator[tuple[str, Training]]:
    for tokens, models in ((32_768, MODELS), (65_536, ("base", "large"))):
        for name in models:
            config, longest, ways = MODELS[name]
            equal, mixed = (longest,) * (tokens // longest), mixed_lengths(longest, tokens)
            for kind, lengths in (("equal", equal), ("mixed", mixed)):
                size = Size(config=config, lengths=lengths)
                case = f"pretraining_gpu/{name}-{kind}-{tokens // 1000}k"
                yield case, Training(size=size, ways=ways)
    size = Size(config=BASE | NO_DROPOUT, lengths=(128,) * 32)
    classifier = Training(size=size, ways=CLASSIFIER_WAYS, classifies=True)
    yield "finetuning_gpu/base-32x128", classifier
    # Beside nothing else: what a capture does to its process costs no other result.
    yield "training_graphs/finetuning-4k", replace(classifier, ways={}, ours=BY_GRAPHS)
    size = Size(config=BASE | NO_DROPOUT, lengths=(512,) * 32)
    yield "training_graphs/pretraining-16k", Training(size=size, ways={}, ours=BY_GRAPHS)


TRAININGS = dict(_trainings())


def case_specs() -> list[CaseSpec]:
    """Return the case of each model and batch."""
    return specs_of(TRAININGS)


def specs_of(trainings: Mapping[str, Training]) -> list[CaseSpec]:
    """Return a spec for each case of training steps; ``trainings``: by the names of the cases."""
    return [
        CaseSpec(
            name=name,
            summary=f"{STEPS} training steps, {PRECISION}",
            make=partial(make_case, training),
            devices=("cuda",),
        )
        for name, training in trainings.items()
    ]


def make_case(training: Training, options: Options) -> Case:
    """Make the case: draw weights, sequences and targets."""
    size = training.size
    if options.smoke:
        modern = size.config["model_type"] == "modernbert"
        lengths = (7, 7, 7) if len(set(size.lengths)) == 1 else (7, 3, 12, 5)
        size = Size(config=SMOKE_MODERNBERT if modern else TINY | NO_DROPOUT, lengths=lengths)
    clean = draw_batch(size)
    model: TrainingModel
    make_inputs: Callable[[CleanBatch], Inputs]
    if training.classifies:
        model, make_inputs = _make_classifier(size.config), _classified
    else:
        model = masked = make_model(size.config)
        make_inputs = partial(prepare, objectives=masked.objectives, seed=SEED)
    sharpen(model)
    inputs = make_inputs(clean)
    gate = make_gate(
        model,
        [
            make_inputs(part)
            for part in cut(clean, min(sum(size.lengths) // NUM_PARTS, PART_TOKENS))
        ],
        device=options.device,
        precision=PRECISION,
    )
    return Case(
        candidates=(
            *(
                ours(
                    partial(_ours, model, inputs, options.device, variant),
                    name=name,
                    unavailable=variant.why_not(options.device),
                )
                for name, variant in training.ours.items()
            ),
            *(
                candidate(
                    PEER,
                    partial(_theirs, model, inputs, way, options.device),
                    name=peer,
                    unavailable=PEER.available() or _why_not(way, options),
                    libraries=("flash-attn",),
                )
                for peer, way in training.ways.items()
            ),
        ),
        gate=gate,
        fingerprint=fingerprint(size, clean),
        seed=SEED,
        amounts={
            "tokens": STEPS * inputs.batch.num_tokens,
            "operations": STEPS * count_operations(size, inputs),
        },
        ceilings={}
        if options.smoke
        else {"operations": product_ceiling(options.device, PRECISION, options.threads)},
        device=options.device,
        host_time=True,
        # Another candidate's call leaves the allocator with blocks of other sizes.
        single=True,
        rounds=MIN_ROUNDS,
    )


def sharpen(model: TrainingModel) -> None:
    """Draw the blocks' matrices so that a token attends to few others, as in trained models.

    With the initial weights all attention is alike, and a wrong one would change no loss.
    """
    with torch.no_grad():
        for parameter in model.encoder.blocks.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 2.0 * parameter.shape[1] ** -0.5)


def _why_not(way: Way, options: Options) -> str | None:
    if way.packed and options.device != "cuda":
        return "attention on packed sequences is for CUDA devices"
    return options.why_no_compiled_model if way.compiled else None


def _make_classifier(sizes: Mapping[str, Any]) -> TrainingModel:
    torch.manual_seed(SEED)
    config = dict(sizes)
    encoder = Encoder(spec_from_config(config), config=config)
    return SequenceClassificationTask(labels=LABELS).make_model(encoder).train()


def _classified(clean: CleanBatch) -> Inputs:
    """Make the inputs of a classification step: a sequence's class follows from its number."""
    sequences = Sequences(torch.from_numpy(clean.cu_seqlens))
    batch = PackedBatch(input_ids=torch.from_numpy(clean.input_ids), sequences=sequences)
    # Of each sequence the head reads the first row.
    rows = SelectedRows(torch.from_numpy(clean.cu_seqlens[:-1].astype(np.int64)), sequences)
    targets = torch.from_numpy(clean.numbers % len(LABELS))
    return Inputs(batch, {"target": targets}, rows)


def _ours(model: TrainingModel, inputs: Inputs, device: str, variant: Variant) -> Work:
    step = make_step(
        model,
        device=device,
        precision=PRECISION,
        graphs=variant.graphs,
        residual=variant.residual,
    )

    def take() -> SupportsFloat:
        with variant.within():
            return step(inputs)

    return make_work(take, STEPS)


def _theirs(model: TrainingModel, inputs: Inputs, way: Way, device: str) -> Work:
    return make_work(make_their_step(model, inputs, way, device=device, precision=PRECISION), STEPS)
