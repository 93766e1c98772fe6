"""The encoder's forward pass on ready token ids, beside transformers with the same weights.

transformers gets its padded batches ready made, and is not asked to take the padding out again.
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

from benchmarks.case import Call, Candidate, Case, CaseSpec, Options, Verdict
from benchmarks.gates import CosineGate
from benchmarks.peers.transformers import PEER
from encoder_engine import Encoder, ops
from encoder_engine.models.config import spec_from_config
from encoder_engine.packing import PackedBatch, pack, pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor

SEED = 11
# BERT-base, and a MiniLM-sized one for a processor.
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


def case_specs() -> list[CaseSpec]:
    """Equal lengths, where nobody pads, and mixed ones."""
    return [
        CaseSpec(
            name=f"encoder/{kind}",
            summary=f"forward pass on ready token ids, {kind} lengths",
            make=partial(make_case, kind),
            devices=("cpu", "cuda"),
        )
        for kind in ("equal", "mixed")
    ]


def make_case(kind: str, options: Options) -> Case:
    """Draw token ids and weights: float32 on a processor, bfloat16 on a GPU."""
    on_gpu = options.device == "cuda"
    precision = "bfloat16" if on_gpu else "float32"
    config = TINY if options.smoke else BASE if on_gpu else SMALL
    sequences = _draw_sequences(_lengths(kind, options), config["vocab_size"])
    batch = pack(sequences, vocab_size=config["vocab_size"], device=options.device)
    torch.manual_seed(SEED)
    ours = Encoder(spec_from_config(config), config=config).eval().to(options.device)
    judged = sequences[:NUM_JUDGED]
    gate = PackedGate(
        cosines=CosineGate(
            truth=_truth(ours, judged),
            rows=range(sum(map(len, judged))),
            num_rows=batch.num_tokens,
            precision=precision,
        )
    )
    return Case(
        name=f"encoder/{kind}",
        candidates=tuple(_candidates(ours, sequences, batch, getattr(torch, precision))),
        gate=gate,
        fingerprint=hashlib.sha256(repr((sequences, config)).encode()).hexdigest()[:16],
        seed=SEED,
        amounts={"sequences": len(sequences), "tokens": batch.num_tokens},
        device=options.device,
    )


def _lengths(kind: str, options: Options) -> list[int]:
    if options.smoke:
        return [7, 7] if kind == "equal" else [3, 9, 1]
    number = 256 if options.device == "cuda" else 16
    if kind == "equal":
        return [128] * number
    drawn = np.random.default_rng(SEED).uniform(math.log(16), math.log(512), size=number)
    return [int(length) for length in np.exp(drawn)]


def _draw_sequences(lengths: Sequence[int], vocab_size: int) -> list[list[int]]:
    generator = np.random.default_rng(SEED)
    return [generator.integers(1, vocab_size, size=length).tolist() for length in lengths]


def _truth(ours: Encoder, sequences: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Compute float64 rows by the reference implementations, before any weight is rounded."""
    exact = copy.deepcopy(ours).double()
    with torch.inference_mode(), ops.use("reference"):
        hidden_TD = exact(pack(sequences, device=ours.device)).last_hidden_state
    rows: npt.NDArray[np.float64] = hidden_TD.cpu().numpy()
    return rows


def _candidates(
    ours: Encoder, sequences: Sequence[Sequence[int]], batch: PackedBatch, dtype: torch.dtype
) -> Iterator[Candidate]:
    yield Candidate(
        name="encoder-engine",
        role="ours",
        build=partial(_build_ours, copy.deepcopy(ours).to(dtype), batch),
    )
    missing = PEER.available()
    theirs = None if missing is not None else _theirs(ours, dtype)
    by_length = sorted(range(len(sequences)), key=lambda row: -len(sequences[row]))
    sizes = {"transformers, one batch": len(sequences), "transformers, sorted": SORTED_BATCH_SIZE}
    for name, size in sizes.items():
        groups = [by_length[i : i + size] for i in range(0, len(by_length), size)]
        yield Candidate(
            name=name,
            role="peer",
            build=partial(_build_theirs, theirs, sequences, groups, ours.device),
            unavailable=missing,
            libraries=("transformers",),
        )


def _theirs(ours: Encoder, dtype: torch.dtype) -> Any:
    """Give transformers the same weights, by way of a saved checkpoint."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        ours.save_pretrained(folder)
        model = AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    return model.eval().to(ours.device)


def _build_ours(ours: Encoder, batch: PackedBatch) -> Call:
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


def _build_theirs(
    theirs: Any,
    sequences: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    device: torch.device,
) -> Call:
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
    """Judge packed rows, after taking the padding out of those that have it."""

    cosines: CosineGate

    def __call__(self, output: Tensor | PaddedRows) -> Verdict:
        rows = output.packed() if isinstance(output, PaddedRows) else output
        return self.cosines(rows.float().cpu().numpy())
