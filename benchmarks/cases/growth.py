"""Measures how time and memory grow with length, texts, layers, width and vocabulary.

Every case is one value of one axis, all else being equal; ``records/growth.py`` fits exponents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.cases.encoder import (
    BASE,
    NUM_JUDGED,
    SEED,
    SMALL,
    TINY,
    build_ours,
    build_theirs,
    draw_sequences,
    exact_rows,
    load_theirs,
    mixed_lengths,
    packed_rows,
)
from benchmarks.cases.ops import masked_projection
from benchmarks.jobs import op_case
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import (
    Candidate,
    Case,
    CaseSpec,
    Options,
    Verdict,
    Work,
    digest,
    ours,
)
from benchmarks.measuring.ceilings import encoder_operations, product_ceiling
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers.transformers import PEER
from benchmarks.records.growth import case_name
from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

VALUES = {
    "length": (16, 64, 256, 1024, 4096, 8192),
    "batch": (1, 16, 256, 4096),
    "layers": (1, 3, 6, 12),
    "width": (128, 256, 512, 1024),
    "vocabulary": (8_000, 32_000, 128_000, 250_000),
}
SUMMARIES = {
    "length": "forward pass on {} tokens a sequence",
    "batch": "forward pass on {} short sequences of mixed lengths",
    "layers": "forward pass through {} layers",
    "width": "forward pass at a width of {}",
    "vocabulary": "masked loss and its gradients against a vocabulary of {}",
}
# MiniLM's width, and one layer, so that a call on the longest sequence takes less than a second.
SHALLOW = SMALL | {"num_hidden_layers": 1}
# Tokens of a call along the length, which is one of the longest sequences on a processor; they are
# also the most, padding included, that a peer that pads gets at once.
CPU_TOKENS, GPU_TOKENS = 8192, 65_536
LENGTH = 128
CPU_SEQUENCES, GPU_SEQUENCES = 16, 256
# Rows whose 15 % are scored against the vocabulary.
CPU_ROWS, GPU_ROWS = 1024, 8192
SHORTEST, LONGEST = 4, 32
HEAD_DIM = 64
# From these values on a candidate may need more than its share of memory, that of a small server
# with two processes: on one text of 8,192 tokens transformers' eager attention needs over 6 GiB.
BOUNDED = {"length": 4096, "vocabulary": 128_000}
MEMORY_LIMIT_GIB = 4.0
# torch's linear_cross_entropy is not among them: on a processor it takes seconds.
HEAD_PEERS = ("torch dense head", "Liger", "cut cross-entropy")
OURS, EAGER = "encoder-engine", "torch eager"


def case_specs() -> list[CaseSpec]:
    """Every value of every axis."""
    return [
        CaseSpec(
            name=case_name(axis, value),
            summary=SUMMARIES[axis].format(f"{value:,}"),
            make=partial(make_head_case if axis == "vocabulary" else make_case, axis, value),
            devices=("cpu", "cuda"),
        )
        for axis, values in VALUES.items()
        for value in values
    ]


@dataclass(frozen=True, kw_only=True)
class EncoderJob:
    """An encoder and its inputs as values, small enough to be sent to another process."""

    config: Mapping[str, Any]
    lengths: tuple[int, ...]
    device: str
    precision: str

    def encoder(self) -> Encoder:
        """Draw the weights from a fixed seed."""
        torch.manual_seed(SEED)
        config = dict(self.config)
        return Encoder(spec_from_config(config), config=config).eval().to(self.device)

    def sequences(self) -> list[list[int]]:
        """Draw the token ids from a fixed seed."""
        return draw_sequences(self.lengths, self.config["vocab_size"])


def choose_job(axis: str, value: int, options: Options) -> EncoderJob:
    """Choose sizes: float32 on a processor, BERT-base in bfloat16 on a GPU."""
    on_gpu = options.device == "cuda"
    config = dict(BASE if on_gpu else SHALLOW)
    lengths = [LENGTH] * (GPU_SEQUENCES if on_gpu else CPU_SEQUENCES)
    if axis == "length":
        config["max_position_embeddings"] = max(VALUES["length"])
        lengths = [value] * ((GPU_TOKENS if on_gpu else CPU_TOKENS) // value)
    elif axis == "batch":
        lengths = mixed_lengths(SHORTEST, LONGEST, value)
    elif axis == "layers":
        config["num_hidden_layers"] = value
    else:
        config |= {
            "hidden_size": value,
            "num_attention_heads": value // HEAD_DIM,
            "intermediate_size": 4 * value,
        }
    if options.smoke:
        config, lengths = dict(TINY), [3, 9, 1]
    return EncoderJob(
        config=config,
        lengths=tuple(lengths),
        device=options.device,
        precision="bfloat16" if on_gpu else "float32",
    )


def make_case(axis: str, value: int, options: Options) -> Case:
    """Compare the encoder with transformers; for ``length`` also with eager attention."""
    job = choose_job(axis, value, options)
    judged = job.sequences()[: max(1, min(NUM_JUDGED, CPU_TOKENS // max(job.lengths)))]
    # By torch's own operations: the reference writes out the scores of every head in turn.
    truth = exact_rows(job.encoder(), judged, by="aten")
    peers = {"transformers, SDPA": "sdpa"}
    if axis == "length":
        peers["transformers, eager attention"] = "eager"
    theirs = [
        candidate(PEER, partial(build_peer, job, attention), name=name)
        for name, attention in peers.items()
    ]
    return _case(
        axis,
        value,
        options,
        candidates=[ours(partial(build_encoder, job)), *theirs],
        gate=CosineGate(
            truth=truth,
            rows=range(len(truth)),
            num_rows=sum(job.lengths),
            precision=job.precision,
        ),
        job=job,
        seed=SEED,
        precision=job.precision,
        amounts={
            "sequences": len(job.lengths),
            "tokens": sum(job.lengths),
            "operations": encoder_operations(job.config, job.lengths),
        },
    )


def build_encoder(job: EncoderJob) -> Work:
    """Load the engine's own."""
    encoder = job.encoder().to(getattr(torch, job.precision))
    vocab_size = job.config["vocab_size"]
    batch = pack(job.sequences(), vocab_size=vocab_size, device=job.device)
    call = build_ours(encoder, batch)
    return Work(call=call, answer=lambda: packed_rows(call()))


def build_peer(job: EncoderJob, attention: str) -> Work:
    """Load transformers' model with the same weights, for padded batches sorted by length."""
    encoder = job.encoder()
    theirs = load_theirs(encoder, getattr(torch, job.precision), attention)
    most = GPU_TOKENS if job.device == "cuda" else CPU_TOKENS
    groups = list(padded_groups(job.lengths, most))
    call = build_theirs(theirs, job.sequences(), groups, encoder.device)
    return Work(call=call, answer=lambda: packed_rows(call()))


def padded_groups(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group sequences by length; no group has more than ``most`` tokens, padding included."""
    by_length = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while by_length:
        number = max(1, most // lengths[by_length[0]])
        yield by_length[:number]
        by_length = by_length[number:]


def _case(
    axis: str,
    value: int,
    options: Options,
    *,
    job: EncoderJob | HeadJob,
    precision: str,
    candidates: Sequence[Candidate],
    **facts: Any,
) -> Case:
    """Make a case of few rounds; on a CPU, large values run in processes with bounded memory."""
    ceiling = product_ceiling(options.device, precision, options.threads)
    return Case(
        candidates=tuple(replace(candidate, keep_slow=True) for candidate in candidates),
        fingerprint=digest(job),
        ceilings={} if options.smoke else {"operations": ceiling},
        device=options.device,
        isolated=options.device == "cpu" and value >= BOUNDED.get(axis, math.inf),
        memory_limit_gib=MEMORY_LIMIT_GIB,
        call_memory=True,
        rounds=MIN_ROUNDS,
        **facts,
    )


@dataclass(frozen=True, kw_only=True)
class HeadJob:
    """Hidden states and a vocabulary, small enough to be sent to another process."""

    shape: op_case.Shape
    vocab_size: int

    def work(self) -> op_case.Work:
        """Draw the inputs from a fixed seed; the engine chooses whether to store logits."""
        return masked_projection.make_work(None, self.shape, self.vocab_size)


def make_head_case(axis: str, value: int, options: Options) -> Case:
    """Compare the masked loss and its gradients with torch, sparse and dense, and GPU libraries.

    At MiniLM's width on a processor, at BERT-base's on a GPU.
    """
    on_gpu = options.device == "cuda"
    shape = op_case.Shape(
        lengths=(40 if options.smoke else GPU_ROWS if on_gpu else CPU_ROWS,),
        num_heads=12,
        head_dim=64 if on_gpu else 32,
        dtype=torch.bfloat16 if on_gpu else torch.float32,
        device=options.device,
    )
    vocab_size = masked_projection.SMALL_VOCAB if options.smoke else value
    job = HeadJob(shape=shape, vocab_size=vocab_size)
    work = job.work()
    compute = partial(op_case.make_call, training=True)
    truth = compute(partial(work.ours, "reference"), op_case.widened(work.inputs))()
    eager = compute(work.eager, work.inputs)()
    known = {rival.name: rival for rival in work.rivals}
    rivals = [op_case.Rival(name=EAGER, function=work.eager), *(known[n] for n in HEAD_PEERS)]
    peers = [
        Candidate(
            name=rival.name,
            role="peer",
            build=partial(build_head, job, rival.name),
            unavailable=rival.unavailable,
            libraries=rival.libraries,
        )
        for rival in rivals
    ]
    budget = op_case.BudgetGate(truth=truth, eager=eager, inputs=work.inputs, terms=work.terms)
    return _case(
        axis,
        value,
        options,
        candidates=[ours(partial(build_head, job, OURS)), *peers],
        gate=HeadGate(budget=budget),
        job=job,
        seed=op_case.SEED,
        precision=job.shape.facts.dtype,
        amounts={
            "tokens": job.shape.num_tokens,
            "operations": round((1 + work.backward_ratio) * work.operations),
        },
    )


def build_head(job: HeadJob, way: str) -> Work:
    """Draw the inputs; a call computes loss and gradients by one candidate."""
    work = job.work()
    functions = {rival.name: rival.function for rival in work.rivals}
    functions |= {OURS: partial(work.ours, None), EAGER: work.eager}
    call = op_case.make_call(functions[way], work.inputs, training=True)
    return Work(call=call, answer=lambda: {name: _sendable(x) for name, x in call().items()})


def _sendable(tensor: Tensor) -> Any:
    """Return a tensor in a form that can be pickled: on a CPU, as an array."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


@dataclass(frozen=True, kw_only=True)
class HeadGate:
    """Check the loss and every gradient by the numeric budget, arrays or tensors."""

    budget: op_case.BudgetGate

    def __call__(self, output: Mapping[str, Any]) -> Verdict:
        return self.budget({name: torch.as_tensor(values) for name, values in output.items()})
