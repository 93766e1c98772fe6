"""One and eight short texts on a GPU: the host's launches outlast the kernels.

The time is the host's, from token ids on the host to hidden states on the host. transformers gets
padded ids that are on the device already.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.cases.encoder import (
    BASE,
    SEED,
    TINY,
    PackedGate,
    PaddedRows,
    build_theirs,
    draw_sequences,
    exact_rows,
    load_theirs,
)
from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Call, Candidate, Case, CaseSpec, Options
from benchmarks.measuring.ceilings import encoder_operations
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import CapturedEncoder
from encoder_engine.packing import PackedBatch, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.models import EncoderOutput

LENGTH = 30


def case_specs() -> list[CaseSpec]:
    """Return one text and eight."""
    return [
        CaseSpec(
            name=f"encoder_short/{number}-{'text' if number == 1 else 'texts'}",
            summary=f"{number} of {LENGTH} tokens, from ids to hidden states on the host",
            make=partial(make_case, number),
            devices=("cuda",),
        )
        for number in (1, 8)
    ]


def make_case(number: int, options: Options) -> Case:
    """Draw token ids and weights: bfloat16 on a GPU."""
    precision = "bfloat16" if options.device == "cuda" else "float32"
    config: dict[str, Any] = dict(TINY if options.smoke else BASE)
    lengths = [LENGTH] * number
    sequences = draw_sequences(lengths, config["vocab_size"])
    torch.manual_seed(SEED)
    exact = Encoder(spec_from_config(config), config=config).eval().to(options.device)
    ours = copy.deepcopy(exact).to(getattr(torch, precision))
    gate = PackedGate(
        cosines=CosineGate(
            truth=exact_rows(exact, sequences),
            rows=range(sum(lengths)),
            num_rows=sum(lengths),
            precision=precision,
        )
    )
    batch = pack(sequences, vocab_size=config["vocab_size"])
    missing = PEER.available()
    theirs = None if missing is not None else load_theirs(exact, ours.dtype)
    return Case(
        name=f"encoder_short/{number}-{'text' if number == 1 else 'texts'}",
        candidates=(
            Candidate(
                name="encoder-engine, captured",
                role="ours",
                build=partial(build_ours, CapturedEncoder(ours), batch),
            ),
            Candidate(name="encoder-engine", role="ours", build=partial(build_ours, ours, batch)),
            Candidate(
                name="transformers, one batch",
                role="peer",
                build=partial(build_peer, theirs, sequences, ours.device),
                unavailable=missing,
                libraries=("transformers",),
            ),
        ),
        gate=gate,
        fingerprint=hashlib.sha256(repr((sequences, config)).encode()).hexdigest()[:16],
        seed=SEED,
        amounts={
            "sequences": number,
            "tokens": sum(lengths),
            "operations": encoder_operations(config, lengths),
        },
        device=options.device,
        host_time=True,
    )


def build_ours(encoder: Callable[[PackedBatch], EncoderOutput], batch: PackedBatch) -> Call:
    """Return the forward pass on a batch that is on the host."""
    return torch.inference_mode()(lambda: encoder(batch).last_hidden_state.cpu())


def build_peer(theirs: Any, sequences: Sequence[Sequence[int]], device: torch.device) -> Call:
    """Return the forward pass of transformers, and the copy of its hidden states."""
    call = build_theirs(theirs, sequences, [range(len(sequences))], device)

    def copied() -> PaddedRows:
        rows: PaddedRows = call()
        return replace(rows, hidden=[hidden_BLD.cpu() for hidden_BLD in rows.hidden])

    return torch.inference_mode()(copied)
