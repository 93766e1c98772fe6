"""The encoder's forward pass on token ids, compared with transformers with the same weights.

transformers gets padded batches that were made beforehand, and need not remove the padding.
"""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.jobs.gates import CosineGate
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Work, digest, ours
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


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A case: the lengths of the token rows, and the model's config on a GPU (on a CPU: MiniLM's).

    ``number``: None, or how many short texts a call computes. A GPU's kernels then end before the
    host has launched them all, so the time is the host's, from token ids to hidden states there.
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
    """Make the case: draw token ids and weights, in float32 on a CPU, in bfloat16 on a GPU."""
    on_gpu = options.device == "cuda"
    precision = "bfloat16" if on_gpu else "float32"
    config = dict(TINY if options.smoke else kind.config if on_gpu else SMALL)
    lengths = _lengths(kind, options)
    sequences = draw_sequences(lengths, config["vocab_size"])
    torch.manual_seed(SEED)
    exact = Encoder(spec_from_config(config), config=config).eval().to(options.device)
    truth = exact_rows(exact, sequences[:NUM_JUDGED])
    make_candidates = _short_candidates if kind.number else _candidates
    ceiling = product_ceiling(options.device, precision, options.threads)
    return Case(
        candidates=tuple(make_candidates(exact, sequences, getattr(torch, precision), options)),
        gate=CosineGate(
            truth=truth, rows=range(len(truth)), num_rows=sum(lengths), precision=precision
        ),
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
    # Log-uniform: most are short.
    drawn = np.random.default_rng(SEED).uniform(math.log(16), math.log(512), size=number)
    return [int(length) for length in np.exp(drawn)]


def draw_sequences(lengths: Sequence[int], vocab_size: int) -> list[list[int]]:
    """Draw the token ids of each sequence."""
    generator = np.random.default_rng(SEED)
    return [generator.integers(1, vocab_size, size=length).tolist() for length in lengths]


def exact_rows(encoder: Encoder, sequences: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Compute hidden states [T, D] in float64 by the reference operations, on unrounded weights."""
    exact = copy.deepcopy(encoder).double()
    with torch.inference_mode(), ops.use("reference"):
        hidden_TD = exact(pack(sequences, device=encoder.device)).last_hidden_state
    rows: npt.NDArray[np.float64] = hidden_TD.cpu().numpy()
    return rows


def _candidates(
    exact: Encoder, sequences: Sequence[Sequence[int]], dtype: torch.dtype, options: Options
) -> Iterator[Candidate]:
    batch = pack(sequences, vocab_size=exact.config["vocab_size"], device=options.device)
    yield ours(partial(build_ours, copy.deepcopy(exact).to(dtype), batch))
    theirs = None if PEER.available() is not None else load_theirs(exact, dtype)
    for name, compiled in (("one batch", False), ("compiled, one batch", True)):
        yield candidate(
            PEER,
            partial(build_theirs, theirs, batch, compiled=compiled),
            name=f"transformers, {name}",
            unavailable=options.why_no_compiled_model if compiled else None,
        )


def _short_candidates(
    exact: Encoder, sequences: Sequence[Sequence[int]], dtype: torch.dtype, _options: Options
) -> Iterator[Candidate]:
    """Yield candidates: ours get token ids on the host, transformers' padded ids on the GPU."""
    encoder = copy.deepcopy(exact).to(dtype)
    batch = pack(sequences, vocab_size=exact.config["vocab_size"])
    captured = CapturedEncoder(encoder)
    yield ours(partial(build_ours, captured, batch, to="cpu"), "encoder-engine, captured")
    yield ours(partial(build_ours, encoder, batch, to="cpu"))
    theirs = None if PEER.available() is not None else load_theirs(exact, dtype)
    on_device = pack(sequences, device=exact.device)
    yield candidate(
        PEER, partial(build_theirs, theirs, on_device, to="cpu"), name="transformers, one batch"
    )


def load_theirs(encoder: Encoder, dtype: torch.dtype) -> Any:
    """Load transformers' model with the same weights, through a saved checkpoint."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        encoder.save_pretrained(folder)
        model = AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    return model.eval().to(encoder.device)


def build_ours(
    encoder: Callable[[PackedBatch], EncoderOutput], batch: PackedBatch, *, to: str | None = None
) -> Work:
    """Return the encoder's forward pass on a packed batch; ``to``: a device that gets the rows."""
    return _work(lambda: encoder(batch).last_hidden_state, to)


def build_theirs(
    theirs: Any, batch: PackedBatch, *, compiled: bool = False, to: str | None = None
) -> Work:
    """Return the forward pass of transformers' model on the batch, padded beforehand.

    ``compiled``: by torch.compile. ``to``: a device that gets the hidden states.
    """
    model = torch.compile(theirs) if compiled else theirs
    sequences = batch.sequences
    inputs = {
        "input_ids": pad(batch.input_ids.long(), sequences),
        "attention_mask": pad(torch.ones_like(batch.input_ids).long(), sequences),
    }
    places = (sequences.sequence_ids.cpu(), sequences.positions.cpu())
    return _work(lambda: model(**inputs).last_hidden_state, to, places)


def _work(forward: Callable[[], Tensor], to: str | None, places: Any = slice(None)) -> Work:
    """Return the timed call, a forward pass, and the gate's, which returns its rows in float32.

    ``to``: the device that the rows are copied to; None: they stay where they are.
    ``places``: the rows that the gate gets.
    """

    @torch.inference_mode()
    def call() -> Tensor:
        return forward() if to is None else forward().to(to)

    return Work(call=call, answer=lambda: call().cpu()[places].float().numpy())
