"""A pretraining step on a CPU, compared with the loop of transformers' examples.

Both have the same model, weights, blocks of equal length, hidden tokens and learning rate; neither
has any padding to compute. Both return the loss of the first step.
"""

from __future__ import annotations

import copy
import hashlib
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from benchmarks.cases.encoder import BASE, TINY
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Verdict, Work
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder, ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.heads import MaskedLM
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.objective import PretrainingModel, prepare
from encoder_engine.packing.clean import CleanBatch
from encoder_engine.training.optim import make_optimizers
from encoder_engine.training.recipe import OptimizerRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.models.training_model import Inputs

SEED = 13
MASK_ID = 4
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OPTIMIZER = OptimizerRecipe(learning_rate=1e-4)


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model's sizes, and the blocks of a step."""

    config: Mapping[str, Any]
    length: int
    number: int


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
        length=128,
        number=32,
    ),
    "base": Size(config=BASE | NO_DROPOUT, length=128, number=8),
}


def case_specs() -> list[CaseSpec]:
    """Return a step of each size."""
    return [
        CaseSpec(
            name=f"pretraining/{name}",
            summary=f"a training step of masked language modelling, BERT-{name}, float32",
            make=partial(make_case, name, size),
        )
        for name, size in SIZES.items()
    ]


def make_case(name: str, size: Size, options: Options) -> Case:
    """Draw weights and blocks, and hide tokens in them."""
    if options.smoke:
        size = Size(config=TINY | NO_DROPOUT, length=7, number=3)
    clean = _draw(size)
    model = make_model(size.config)
    inputs = prepare(clean, model.objectives, seed=SEED)
    missing = PEER.available()
    return Case(
        name=f"pretraining/{name}",
        candidates=(
            Candidate(name="encoder-engine", role="ours", build=partial(_ours, model, inputs)),
            Candidate(
                name="transformers, a loop",
                role="peer",
                build=partial(_theirs, model, inputs, size),
                unavailable=missing,
                libraries=("transformers",),
            ),
        ),
        gate=LossGate(truth=exact_loss(model, inputs)),
        fingerprint=hashlib.sha256(
            repr((dict(size.config), clean.input_ids.tolist(), clean.cu_seqlens.tolist())).encode()
        ).hexdigest()[:16],
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


def _draw(size: Size) -> CleanBatch:
    num_tokens = size.length * size.number
    generator = np.random.default_rng(SEED)
    offsets = np.arange(0, num_tokens + 1, size.length, dtype=np.int32)
    special = np.zeros(num_tokens, np.bool_)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    ids = generator.integers(5, size.config["vocab_size"], num_tokens).astype(np.int32)
    return CleanBatch(
        input_ids=ids,
        cu_seqlens=offsets,
        numbers=np.arange(size.number, dtype=np.int64),
        special=special,
        word_starts=np.ones(num_tokens, np.bool_),
    )


def exact_loss(model: PretrainingModel, inputs: Inputs) -> float:
    """Compute the loss in float64."""
    exact = copy.deepcopy(model).double()
    with torch.inference_mode(), ops.use("reference"):
        found = exact(inputs)["mlm"]
    loss: float = found.total.item() / found.num_terms
    return loss


def _ours(model: PretrainingModel, inputs: Inputs) -> Work:
    return _work(partial(make_step(model), inputs))


def make_step(model: PretrainingModel) -> Callable[[Inputs], float]:
    """Train a copy of the model: a call takes a step, and returns the loss before it."""
    model = copy.deepcopy(model)
    optimizers = make_optimizers(model, OPTIMIZER)

    def step(inputs: Inputs) -> float:
        found = model(inputs)["mlm"]
        loss = found.total / found.num_terms
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.detach())

    return step


def _theirs(model: PretrainingModel, inputs: Inputs, size: Size) -> Work:
    from transformers import AutoModelForMaskedLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    own = model.heads["mlm"]
    assert isinstance(own, MaskedLM)
    with tempfile.TemporaryDirectory() as folder:
        own.save_pretrained(folder)
        theirs: Any = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="sdpa")
    theirs.train()
    decayed = [p for p in theirs.parameters() if p.dim() >= 2]
    others = [p for p in theirs.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.98), eps=1e-6)
    assert inputs.rows is not None
    rows = inputs.rows.rows[inputs.targets["rows"]]
    labels = torch.full((inputs.batch.num_tokens,), -100)
    labels[rows] = inputs.targets["labels"]
    shape = (size.number, size.length)
    given = {
        "input_ids": inputs.batch.input_ids.long().view(shape),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "labels": labels.view(shape),
    }

    def step() -> float:
        loss = theirs(**given).loss
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return _work(step)


def _work(step: Callable[[], float]) -> Work:
    """Make a step to time; the gate compares the first loss, of the initial weights."""
    first: list[float] = []

    def answer() -> float:
        if not first:
            first.append(step())
        return first[0]

    return Work(call=step, answer=answer)


@dataclass(frozen=True, kw_only=True)
class LossGate:
    """Compare a loss with a float64 reference, to the precision of float32 sums."""

    truth: float

    def __call__(self, loss: float) -> Verdict:
        error = abs(loss - self.truth) / self.truth
        most = float(np.sqrt(np.finfo(np.float32).eps))
        figures = {"loss": loss, "relative_error": error}
        if error <= most:
            return Verdict(passed=True, figures=figures)
        return Verdict(
            passed=False, figures=figures, reason=f"loss {loss}, the truth is {self.truth}"
        )
