"""The encoder's forward pass on token ids, compared with transformers with the same weights.

transformers gets padded batches that were made beforehand, and need not remove the padding.
"""

from __future__ import annotations

import copy
import hashlib
import math
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Call, Candidate, Case, CaseSpec, Options, Verdict
from benchmarks.measuring.ceilings import encoder_operations, product_ceiling
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder, ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.packing import PackedBatch, pack, pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    from torch import Tensor

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
    """A case: lengths, and the size of the model on a GPU; on a processor it is MiniLM's."""

    lengths: str
    config: Mapping[str, Any]
    devices: tuple[str, ...] = ("cuda",)


KINDS = {
    "encoder/equal": Kind(lengths="128", config=BASE, devices=("cpu", "cuda")),
    "encoder/mixed": Kind(lengths="mixed", config=BASE, devices=("cpu", "cuda")),
    "encoder/equal-512": Kind(lengths="512", config=BASE),
    "encoder_large/equal": Kind(lengths="128", config=LARGE),
    "encoder_large/equal-512": Kind(lengths="512", config=LARGE),
}


def case_specs() -> list[CaseSpec]:
    """List cases of equal lengths (no padding) and mixed ones; on a GPU also larger ones."""
    return [
        CaseSpec(
            name=name,
            summary=f"forward pass on ready token ids, lengths {kind.lengths}",
            make=partial(make_case, name, kind),
            devices=kind.devices,
        )
        for name, kind in KINDS.items()
    ]


def make_case(name: str, kind: Kind, options: Options) -> Case:
    """Draw token ids and weights: float32 on a processor, bfloat16 on a GPU."""
    on_gpu = options.device == "cuda"
    precision = "bfloat16" if on_gpu else "float32"
    config = dict(TINY if options.smoke else kind.config if on_gpu else SMALL)
    sequences = draw_sequences(_lengths(kind.lengths, options), config["vocab_size"])
    batch = pack(sequences, vocab_size=config["vocab_size"], device=options.device)
    torch.manual_seed(SEED)
    ours = Encoder(spec_from_config(config), config=config).eval().to(options.device)
    judged = sequences[:NUM_JUDGED]
    gate = PackedGate(
        cosines=CosineGate(
            truth=exact_rows(ours, judged),
            rows=range(sum(map(len, judged))),
            num_rows=batch.num_tokens,
            precision=precision,
        )
    )
    ceiling = product_ceiling(options.device, precision, options.threads)
    lengths = [len(sequence) for sequence in sequences]
    candidates = _candidates(ours, sequences, batch, getattr(torch, precision), options)
    return Case(
        name=name,
        candidates=tuple(candidates),
        gate=gate,
        fingerprint=hashlib.sha256(repr((sequences, config)).encode()).hexdigest()[:16],
        seed=SEED,
        amounts={
            "sequences": len(sequences),
            "tokens": batch.num_tokens,
            "operations": encoder_operations(config, lengths),
        },
        ceilings={} if options.smoke else {"operations": ceiling},
        device=options.device,
    )


def _lengths(kind: str, options: Options) -> list[int]:
    if options.smoke:
        return [3, 9, 1] if kind == "mixed" else [7, 7]
    number = 256 if options.device == "cuda" else 16
    if kind != "mixed":
        return [int(kind)] * (number * 128 // int(kind))
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
    ours: Encoder,
    sequences: Sequence[Sequence[int]],
    batch: PackedBatch,
    dtype: torch.dtype,
    options: Options,
) -> Iterator[Candidate]:
    yield Candidate(
        name="encoder-engine",
        role="ours",
        build=partial(build_ours, copy.deepcopy(ours).to(dtype), batch),
    )
    missing = PEER.available()
    theirs = None if missing is not None else load_theirs(ours, dtype)
    by_length = sorted(range(len(sequences)), key=lambda row: -len(sequences[row]))
    one, few = len(sequences), SORTED_BATCH_SIZE
    for name, size, compiled in (
        ("transformers, one batch", one, False),
        ("transformers, compiled, one batch", one, True),
        ("transformers, sorted", few, False),
    ):
        groups = [by_length[i : i + size] for i in range(0, len(by_length), size)]
        yield Candidate(
            name=name,
            role="peer",
            build=partial(build_theirs, theirs, sequences, groups, ours.device, compiled=compiled),
            unavailable=(options.why_uncompiled if compiled else None) or missing,
            libraries=("transformers",),
        )


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
