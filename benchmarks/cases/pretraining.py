"""A pretraining step on a CPU, compared with a loop over transformers' model.

All have the same model, weights, blocks of equal length, hidden tokens and optimizer, and no
dropout; none has any padding to compute. transformers is also compiled, and projects the masked
rows alone by hand, as the step written for JAX does. The gate compares the losses before the first
step and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.cases.encoder import BASE, TINY
from benchmarks.jobs import jax_step
from benchmarks.jobs.jax_step import JaxStep
from benchmarks.jobs.training_step import (
    COMPARED,
    OPTIMIZER,
    LossesGate,
    exact_losses,
    make_gate,
    make_step,
    make_work,
)
from benchmarks.jobs.transformers_step import Way, make_their_step, saved
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Work, digest, ours
from benchmarks.measuring.ceilings import encoder_operations, product_ceiling
from benchmarks.peers import candidate, jax
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.objective import PretrainingModel, prepare
from encoder_engine.packing.clean import CleanBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.models.training_model import Inputs

SEED = 13
MASK_ID = 4
# Micro-batches of the gate, and most tokens of one: activations in float64 take four times as much.
NUM_PARTS, PART_TOKENS = 8, 4096
# The library projects every row to the vocabulary; by hand it can be done for the masked ones.
BY_HAND = {"transformers, compiled, masked rows": Way(compiled=True, masked_rows=True)}
WAYS = {
    "transformers, a loop": Way(),
    "transformers, masked rows": Way(masked_rows=True),
    **BY_HAND,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model's configuration, and the lengths of a step's sequences."""

    config: Mapping[str, Any]
    lengths: tuple[int, ...]


SIZES = {
    # The recipe tiny with a vocabulary of its own.
    "tiny": Size(
        config=BASE
        | NO_DROPOUT
        | {
            "vocab_size": 8192,
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 512,
        },
        lengths=(128,) * 32,
    ),
    # MiniLM's six layers of 384 features.
    "minilm": Size(
        config=BASE
        | NO_DROPOUT
        | {
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
        },
        lengths=(128,) * 16,
    ),
    "base": Size(config=BASE | NO_DROPOUT, lengths=(128,) * 8),
}


def case_specs() -> list[CaseSpec]:
    """Return the case of each size in each precision."""
    return [
        CaseSpec(
            name=f"pretraining/{name}{'' if precision == 'float32' else f'-{precision}'}",
            summary=f"a training step of masked language modelling, BERT-{name}, {precision}",
            make=partial(make_case, size, precision),
        )
        for name, size in SIZES.items()
        for precision in ("float32", "bfloat16")
    ]


def make_case(size: Size, precision: str, options: Options) -> Case:
    """Make the case: draw weights and token ids, and mask some of the tokens."""
    if options.smoke:
        size = Size(config=TINY | NO_DROPOUT, lengths=(7,) * 3)
    clean = draw_batch(size)
    model = make_model(size.config)
    inputs = prepare(clean, model.objectives, seed=SEED)
    if precision == "float32":
        gate = LossesGate(truth=exact_losses(model, [inputs]))
    else:
        tokens = min(sum(size.lengths) // NUM_PARTS, PART_TOKENS)
        parts = [prepare(part, model.objectives, seed=SEED) for part in cut(clean, tokens)]
        gate = make_gate(model, parts, device="cpu", precision=precision)
    return Case(
        candidates=(
            ours(partial(_ours, model, inputs, precision)),
            *(
                candidate(
                    PEER,
                    partial(_theirs, model, inputs, way, precision),
                    name=peer,
                    unavailable=PEER.available()
                    or (options.why_no_compiled_model if way.compiled else None),
                )
                for peer, way in WAYS.items()
            ),
            _by_jax(model, inputs, size, precision),
        ),
        gate=gate,
        fingerprint=fingerprint(size, clean),
        seed=SEED,
        amounts={
            "tokens": inputs.batch.num_tokens,
            "operations": count_operations(size, inputs),
        },
        ceilings={}
        if options.smoke
        else {"operations": product_ceiling("cpu", precision, options.threads)},
    )


def make_model(sizes: Mapping[str, Any]) -> PretrainingModel:
    """Make a masked language model with random weights."""
    torch.manual_seed(SEED)
    config = dict(sizes)
    encoder = Encoder(spec_from_config(config), config=config).train()
    masking = Masking(mask_id=MASK_ID, vocab_size=config["vocab_size"])
    return PretrainingModel(encoder, [MLM(masking=masking)])


def draw_batch(size: Size) -> CleanBatch:
    """Draw the tokens of all sequences; the first and the last of each are special."""
    offsets = np.concatenate([[0], np.cumsum(size.lengths)]).astype(np.int32)
    num_tokens = int(offsets[-1])
    special = np.zeros(num_tokens, np.bool_)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    ids = np.random.default_rng(SEED).integers(5, size.config["vocab_size"], num_tokens)
    return CleanBatch(
        input_ids=ids.astype(np.int32),
        cu_seqlens=offsets,
        numbers=np.arange(len(size.lengths), dtype=np.int64),
        special=special,
        word_starts=np.ones(num_tokens, np.bool_),
    )


def fingerprint(size: Size, clean: CleanBatch) -> str:
    """Identify a model's configuration and a batch."""
    return digest(dict(size.config), clean.input_ids.tolist(), clean.cu_seqlens.tolist())


def cut(clean: CleanBatch, tokens: int) -> list[CleanBatch]:
    """Cut a batch into parts of at most ``tokens`` tokens, or of one longer sequence.

    Each sequence keeps its number, by which its masks are drawn.
    """
    ends = clean.cu_seqlens
    borders = [0]
    for place in range(1, len(ends) - 1):
        if ends[place + 1] - ends[borders[-1]] > tokens:
            borders.append(place)
    return [
        CleanBatch(
            input_ids=clean.input_ids[ends[begin] : ends[end]],
            cu_seqlens=ends[begin : end + 1] - ends[begin],
            numbers=clean.numbers[begin:end],
            special=clean.special[ends[begin] : ends[end]],
            word_starts=clean.word_starts[ends[begin] : ends[end]],
        )
        for begin, end in pairwise((*borders, len(ends) - 1))
    ]


def count_operations(size: Size, inputs: Inputs) -> int:
    """Count the GEMM operations of a step; those of backward are twice those of forward."""
    width, vocabulary = size.config["hidden_size"], size.config["vocab_size"]
    head = 2 * len(inputs.targets.get("rows", ())) * width * (width + vocabulary)
    return 3 * (encoder_operations(size.config, size.lengths) + int(head))


def _ours(model: PretrainingModel, inputs: Inputs, precision: str) -> Work:
    return make_work(partial(make_step(model, precision=precision), inputs))


def _theirs(model: PretrainingModel, inputs: Inputs, way: Way, precision: str) -> Work:
    return make_work(make_their_step(model, inputs, way, device="cpu", precision=precision))


def _by_jax(model: PretrainingModel, inputs: Inputs, size: Size, precision: str) -> Candidate:
    if jax.PEER.available() is not None:
        return candidate(jax.PEER, jax_step.make_work)
    assert inputs.rows is not None
    assert OPTIMIZER.clip_norm is not None
    job = JaxStep(
        folder=saved(model),
        input_ids=inputs.batch.input_ids.numpy().reshape(len(size.lengths), -1),
        rows=inputs.rows.rows[inputs.targets["rows"]].numpy(),
        labels=inputs.targets["labels"].numpy(),
        precision=precision,
        clip_norm=OPTIMIZER.clip_norm,
        learning_rate=OPTIMIZER.learning_rate,
        weight_decay=OPTIMIZER.weight_decay,
        betas=OPTIMIZER.betas,
        epsilon=OPTIMIZER.epsilon,
    )
    return candidate(jax.PEER, partial(jax_step.make_work, job, COMPARED))
