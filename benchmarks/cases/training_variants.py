"""Variants of BERT-base's training step on a GPU: the residual stream's type, attention's kernels.

A step of 64 sequences of 512 tokens in bfloat16, as in ``pretraining_gpu``. Attention without
biases is computed by the Triton kernels, as usual, by cuDNN on dense or packed sequences, or
by the kernels in Gluon. These are a case of their own, because they might never end.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from encoder_engine.kernels.attention.config import GLUON_LAUNCHES
from encoder_engine.kernels.common.pinned import pin

from benchmarks.cases.encoder import BASE
from benchmarks.cases.ops.attention import packed_cudnn
from benchmarks.cases.ops.attention_gluon import why_not_hopper
from benchmarks.cases.pretraining import NO_DROPOUT, Size
from benchmarks.cases.training_gpu import USUAL, Training, Variant, specs_of
from encoder_engine.ops.aten import attention as aten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.kernels.attention.terms import Terms
    from torch import Tensor

    from benchmarks.measuring.case import CaseSpec
    from encoder_engine.packing import Sequences

    Attend = Callable[..., Tensor]

SIZE = Size(config=BASE | NO_DROPOUT, lengths=(512,) * 64)


def case_specs() -> list[CaseSpec]:
    """Return cases that take the step by each variant, and in the usual way."""
    groups = {"attention": ATTENTION, "attention-gluon": GLUON, "stream": STREAM}
    return specs_of(
        {
            f"training_variants/{name}": Training(size=SIZE, ways={}, ours=USUAL | variants)
            for name, variants in groups.items()
        }
    )


@contextmanager
def attending(attend: Attend) -> Iterator[None]:
    """Within this context, call ``attend`` for attention without terms and dropout, process-wide.

    ``attend(usual, ...)``: gets the function that is usually called, then that one's arguments.
    """
    contract: Any = importlib.import_module("encoder_engine.ops.attention")
    find = contract.find_attention

    def find_attention(
        operation: Any, by: Any, terms: Terms, *tensors: Tensor, **facts: Any
    ) -> Any:
        usual = find(operation, by, terms, *tensors, **facts)
        return usual if terms.names() or terms.dropout else partial(attend, usual)

    contract.find_attention = find_attention
    try:
        yield
    finally:
        contract.find_attention = find


def _by_sdpa(_: Attend, *given: Any) -> Tensor:
    return aten.attention(*given)


def _by_packed_cudnn(
    _: Attend, query: Tensor, key: Tensor, value: Tensor, layout: Sequences, __: Terms
) -> Tensor:
    return packed_cudnn(layout, query=query, key=key, value=value)


def _by_gluon(usual: Attend, *given: Any, gradients: bool) -> Tensor:
    # Backward follows what was pinned as the output was computed.
    with pin(attention_forward=GLUON_LAUNCHES[64, 128], attention_gluon_gradients=gradients):
        return usual(*given)


def _why_no_cudnn(device: str) -> str | None:
    return None if device == "cuda" else "for CUDA devices"


# On a GPU the stream is usually in bfloat16.
STREAM = {"encoder-engine, float32 stream": Variant(residual="float32")}
ATTENTION = {
    "encoder-engine, SDPA": Variant(within=partial(attending, _by_sdpa)),
    "encoder-engine, packed cuDNN": Variant(
        within=partial(attending, _by_packed_cudnn), why_not=_why_no_cudnn
    ),
}
GLUON = {
    f"encoder-engine, {name}": Variant(
        within=partial(attending, partial(_by_gluon, gradients=gradients)), why_not=why_not_hopper
    )
    for name, gradients in (("Gluon", False), ("Gluon and gradients", True))
}
