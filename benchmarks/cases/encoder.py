"""The encoder's forward pass on token ids, compared with transformers with the same weights.

transformers gets padded batches that were made beforehand, and need not remove the padding.
"""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import (
    Call,
    Candidate,
    Case,
    CaseSpec,
    Options,
    Verdict,
    digest,
    ours,
)
from benchmarks.measuring.ceilings import encoder_operations, product_ceiling
from benchmarks.peers import candidate
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder, ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import CapturedEncoder
from encoder_engine.packing import PackedBatch, pack, pad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models import EncoderOutput

SEED = 11
# BERT-base and BERT-large, and a MiniLM-sized one for a processor.
BASE: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}
LARGE = BASE | {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
SMALL = BASE | {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
TINY = BASE | {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
NUM_JUDGED = 8
# Sequences per batch where transformers sorts by length first.
SORTED_BATCH_SIZE = 4


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A case: lengths, and the size of the model on a GPU; on a processor it is MiniLM's.

    ``number``: of short texts. The host's launches outlast their kernels, so the time is the
    host's, from token ids to hidden states on the host.
    """

    lengths: str
    config: Mapping[str, Any] = field(default_factory=lambda: BASE)
    devices: tuple[str, ...] = ("cuda",)
    number: int | None = None


KINDS = {
    "encoder/equal": Kind(lengths="128", devices=("cpu", "cuda")),
    "encoder/mixed": Kind(lengths="mixed", devices=("cpu", "cuda")),
    "encoder/equal-512": Kind(lengths="512"),
    "encoder_large/equal": Kind(lengths="128", config=LARGE),
    "encoder_large/equal-512": Kind(lengths="512", config=LARGE),
    "encoder_short/1-text": Kind(lengths="30", number=1),
    "encoder_short/8-texts": Kind(lengths="30", number=8),
}


def case_specs() -> list[CaseSpec]:
    """List cases of equal lengths (no padding) and mixed ones; on a GPU also other sizes."""
    return [
        CaseSpec(
            name=name,
            summary=f"{kind.number} of {kind.lengths} tokens, from ids to hidden states on the host"
            if kind.number
            else f"forward pass on ready token ids, lengths {kind.lengths}",
            make=partial(make_case, kind),
            devices=kind.devices,
        )
        for name, kind in KINDS.items()
    ]


def make_case(kind: Kind, options: Options) -> Case:
    """Draw token ids and weights: float32 on a processor, bfloat16 on a GPU."""
    on_gpu = options.device == "cuda"
    precision = "bfloat16" if on_gpu else "float32"
    config = dict(TINY if options.smoke else kind.config if on_gpu else SMALL)
    sequences = draw_sequences(_lengths(kind, options), config["vocab_size"])
    lengths = [len(sequence) for sequence in sequences]
    torch.manual_seed(SEED)
    exact = Encoder(spec_from_config(config), config=config).eval().to(options.device)
    judged = sequences[:NUM_JUDGED]
    gate = PackedGate(
        cosines=CosineGate(
            truth=exact_rows(exact, judged),
            rows=range(sum(map(len, judged))),
            num_rows=sum(lengths),
            precision=precision,
        )
    )
    make_candidates = _short_candidates if kind.number else _candidates
    dtype = getattr(torch, precision)
    ceiling = product_ceiling(options.device, precision, options.threads)
    return Case(
        candidates=tuple(make_candidates(exact, sequences, dtype, options)),
        gate=gate,
        fingerprint=digest(sequences, config),
        seed=SEED,
        amounts={
            "sequences": len(sequences),
            "tokens": sum(lengths),
            "operations": encoder_operations(config, lengths),
        },
        ceilings={} if options.smoke or kind.number else {"operations": ceiling},
        device=options.device,
        host_time=kind.number is not None,
    )


def _lengths(kind: Kind, options: Options) -> list[int]:
    if kind.number:
        return [int(kind.lengths)] * kind.number
    if options.smoke:
        return [3, 9, 1] if kind.lengths == "mixed" else [7, 7]
    number = 256 if options.device == "cuda" else 16
    if kind.lengths != "mixed":
        return [int(kind.lengths)] * (number * 128 // int(kind.lengths))
    return mixed_lengths(16, 512, number)


def mixed_lengths(low: int, high: int, number: int) -> list[int]:
    """Draw lengths log-uniformly: most are short."""
    drawn = np.random.default_rng(SEED).uniform(math.log(low), math.log(high), size=number)
    return [int(length) for length in np.exp(drawn)]


def draw_sequences(lengths: Sequence[int], vocab_size: int) -> list[list[int]]:
    """Draw the token ids of each sequence."""
    generator = np.random.default_rng(SEED)
    return [generator.integers(1, vocab_size, size=length).tolist() for length in lengths]


def exact_rows(
    ours: Encoder, sequences: Sequence[Sequence[int]], by: str = "reference"
) -> npt.NDArray[np.float64]:
    """Compute rows in float64 by one implementation, before any weight is rounded."""
    exact = copy.deepcopy(ours).double()
    with torch.inference_mode(), ops.use(by):
        hidden_TD = exact(pack(sequences, device=ours.device)).last_hidden_state
    rows: npt.NDArray[np.float64] = hidden_TD.cpu().numpy()
    return rows


def _candidates(
    exact: Encoder, sequences: Sequence[Sequence[int]], dtype: torch.dtype, options: Options
) -> Iterator[Candidate]:
    batch = pack(sequences, vocab_size=exact.config["vocab_size"], device=options.device)
    yield ours(partial(build_ours, copy.deepcopy(exact).to(dtype), batch))
    theirs = None if PEER.available() is not None else load_theirs(exact, dtype)
    by_length = sorted(range(len(sequences)), key=lambda row: -len(sequences[row]))
    for name, size, compiled in (
        ("transformers, one batch", len(sequences), False),
        ("transformers, compiled, one batch", len(sequences), True),
        ("transformers, sorted", SORTED_BATCH_SIZE, False),
    ):
        groups = [by_length[i : i + size] for i in range(0, len(by_length), size)]
        yield candidate(
            PEER,
            partial(build_theirs, theirs, sequences, groups, exact.device, compiled=compiled),
            name=name,
            unavailable=options.why_uncompiled if compiled else None,
        )


def _short_candidates(
    exact: Encoder, sequences: Sequence[Sequence[int]], dtype: torch.dtype, _options: Options
) -> Iterator[Candidate]:
    """Compute short texts from ids on the host; transformers gets padded ids on the device."""
    encoder = copy.deepcopy(exact).to(dtype)
    batch = pack(sequences, vocab_size=exact.config["vocab_size"])
    captured = CapturedEncoder(encoder)
    yield ours(partial(build_copied, captured, batch), "encoder-engine, captured")
    yield ours(partial(build_copied, encoder, batch))
    theirs = None if PEER.available() is not None else load_theirs(exact, dtype)

    def build_peer() -> Call:
        call = build_theirs(theirs, sequences, [range(len(sequences))], exact.device)

        def copied() -> PaddedRows:
            rows: PaddedRows = call()
            return replace(rows, hidden=[hidden_BLD.cpu() for hidden_BLD in rows.hidden])

        return torch.inference_mode()(copied)

    yield candidate(PEER, build_peer, name="transformers, one batch")


def build_copied(encoder: Callable[[PackedBatch], EncoderOutput], batch: PackedBatch) -> Call:
    """Return the forward pass on a batch that is on the host, as its result is."""
    return torch.inference_mode()(lambda: encoder(batch).last_hidden_state.cpu())


def load_theirs(ours: Encoder, dtype: torch.dtype, attention: str = "sdpa") -> Any:
    """Load transformers' model with the same weights, through a saved checkpoint."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        ours.save_pretrained(folder)
        model = AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    return model.eval().to(ours.device)


def build_ours(ours: Encoder, batch: PackedBatch) -> Call:
    """Return the forward pass on a packed batch."""
    return torch.inference_mode()(lambda: ours(batch).last_hidden_state)


@dataclass(frozen=True, kw_only=True, eq=False)
class PaddedRows:
    """Hidden states [b, L, D] of each group of sequences, and which sequences those are."""

    groups: Sequence[Sequence[int]]
    lengths: Sequence[int]
    hidden: Sequence[Tensor]

    def packed(self) -> Tensor:
        """Take the padding out and put the sequences in their order: [T, D]."""
        found = {
            row: hidden_BLD[place, : self.lengths[row]]
            for group, hidden_BLD in zip(self.groups, self.hidden, strict=True)
            for place, row in enumerate(group)
        }
        return torch.cat([found[row] for row in sorted(found)])


def build_theirs(
    theirs: Any,
    sequences: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    device: torch.device,
    *,
    compiled: bool = False,
) -> Call:
    """Return the forward pass of transformers on each group of sequences, padded beforehand."""
    if compiled:
        theirs = torch.compile(theirs)
    lengths = [len(sequence) for sequence in sequences]
    inputs = [_padded([sequences[row] for row in group], device) for group in groups]

    def call() -> PaddedRows:
        hidden = [theirs(**padded).last_hidden_state for padded in inputs]
        return PaddedRows(groups=groups, lengths=lengths, hidden=hidden)

    return torch.inference_mode()(call)


def _padded(sequences: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    batch = pack(sequences, device=device)
    ones = torch.ones_like(batch.input_ids)
    return {
        "input_ids": pad(batch.input_ids.long(), batch.sequences),
        "attention_mask": pad(ones.long(), batch.sequences),
    }


@dataclass(frozen=True, kw_only=True)
class PackedGate:
    """Compare packed rows with the float64 reference, after removing any padding."""

    cosines: CosineGate

    def __call__(self, output: Tensor | PaddedRows) -> Verdict:
        return self.cosines(packed_rows(output))


def packed_rows(output: Tensor | PaddedRows) -> npt.NDArray[np.float32]:
    """Return an output as packed rows of float32."""
    rows_TD = output.packed() if isinstance(output, PaddedRows) else output
    rows: npt.NDArray[np.float32] = rows_TD.float().cpu().numpy()
    return rows
