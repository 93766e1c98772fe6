"""A pretraining step on a CPU, compared with a loop over transformers' model.

Both have the same model, weights, blocks of equal length, hidden tokens and optimizer, and no
dropout; neither has any padding to compute. The gate compares the losses before the first step and
after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.cases.encoder import BASE, TINY
from benchmarks.jobs.training_step import LossesGate, exact_losses, make_step, make_work
from benchmarks.jobs.transformers_step import Way, make_their_step
from benchmarks.measuring.case import Case, CaseSpec, Options, Work, digest, ours
from benchmarks.peers import candidate
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
    "base": Size(config=BASE | NO_DROPOUT, lengths=(128,) * 8),
}


def case_specs() -> list[CaseSpec]:
    """Return a step of each size."""
    return [
        CaseSpec(
            name=f"pretraining/{name}",
            summary=f"a training step of masked language modelling, BERT-{name}, float32",
            make=partial(make_case, size),
        )
        for name, size in SIZES.items()
    ]


def make_case(size: Size, options: Options) -> Case:
    """Draw weights and blocks, and hide tokens in them."""
    if options.smoke:
        size = Size(config=TINY | NO_DROPOUT, lengths=(7,) * 3)
    clean = draw_batch(size)
    model = make_model(size.config)
    inputs = prepare(clean, model.objectives, seed=SEED)
    return Case(
        candidates=(
            ours(partial(_ours, model, inputs)),
            candidate(PEER, partial(_theirs, model, inputs), name="transformers, a loop"),
        ),
        gate=LossesGate(truth=exact_losses(model, [inputs])),
        fingerprint=fingerprint(size, clean),
        seed=SEED,
        amounts={"tokens": inputs.batch.num_tokens},
    )


def make_model(sizes: Mapping[str, Any]) -> PretrainingModel:
    """Draw the weights of a masked language model."""
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


def _ours(model: PretrainingModel, inputs: Inputs) -> Work:
    return make_work(partial(make_step(model), inputs))


def _theirs(model: PretrainingModel, inputs: Inputs) -> Work:
    return make_work(make_their_step(model, inputs, Way(), device="cpu", precision="float32"))
