"""Equal lengths: cuDNN computes them where an H200 was faster with it, in one call of views."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.ops.registry import choose_implementation
from encoder_engine.packing import Sequences
from tests.ops.attention.cases import AttentionCase
from tests.ops.cases import rows
from tests.ops.compare import compare_outputs

if TYPE_CHECKING:
    from torch import Tensor

# The facts of the records of nvidia-h200.jsonl in which SDPA was faster, without gradients.
RECORDED: dict[str, Any] = {
    "device": "cuda",
    "dtype": "bfloat16",
    "head_dim": 64,
    "equal_length": 512,
}
OTHERS: list[dict[str, Any]] = [
    *({"equal_length": length} for length in (0, 256, 640, 1024, 4096, 16_384)),
    *({"head_dim": 128, "equal_length": length} for length in (512, 8192)),
    *({"head_dim": size} for size in (32, 96)),
    *({"dtype": dtype} for dtype in ("float16", "float32")),
    *({name: True} for name in ("requires_grad", "dropout", "grouped_heads")),
    *({"terms": (name,)} for name in ("window", "causal", "relative_bias", "query_rows")),
]


def chosen(**facts: Any) -> str:
    return choose_implementation("attention", ops.explain("attention", **facts), None)


def test_cudnn_computes_what_it_was_recorded_to_be_faster_with() -> None:
    for head_dim, lengths in {64: (512, 2048, 8192), 128: (2048,)}.items():
        for length in lengths:
            assert chosen(**RECORDED | {"head_dim": head_dim, "equal_length": length}) == "aten"
    for facts in OTHERS:
        assert chosen(**RECORDED | facts) == "triton", facts
    named = ops.find_operation("attention").explain(AttentionFacts(**RECORDED), named=True)
    assert choose_implementation("attention", named, "triton") == "triton"


@pytest.mark.parametrize(
    ("lengths", "hopper", "stated"),
    [
        ([512] * 16, True, 512),
        ([512] * 16, False, 0),
        ([512] * 15, True, 0),
        ([512] * 15 + [511, 1], True, 0),
        ([8192], True, 8192),
    ],
)
def test_a_call_states_the_length_of_a_long_batch_on_a_hopper_gpu(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], hopper: bool, stated: int
) -> None:
    contract = importlib.import_module("encoder_engine.ops.attention")
    monkeypatch.setattr(contract.gpu, "is_hopper", lambda _: hopper)
    found: list[int] = []

    def find(*_: object, equal_length: int) -> Any:
        found.append(equal_length)
        return lambda query, *_: query

    monkeypatch.setattr(contract, "find_attention", find)
    heads = torch.zeros(sum(lengths), 1, 1)
    ops.attention(heads, heads, heads, Sequences.from_lengths(lengths))
    assert found == [stated]


@pytest.mark.parametrize("grads", [False, True])
def test_equal_lengths_are_one_call_of_views(monkeypatch: pytest.MonkeyPatch, grads: bool) -> None:
    given: list[Tensor] = []
    sdpa: Any = F.scaled_dot_product_attention

    def recorded(*tensors: Tensor, **options: Any) -> Tensor:
        given.extend(tensors)
        output: Tensor = sdpa(*tensors, **options)
        return output

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    packed = rows(3 * 16, 3, 2, 16, seed=0, dtype=torch.bfloat16, device="cpu")
    layout = Sequences.from_lengths([16] * 3)
    with torch.set_grad_enabled(grads):
        query, key, value = packed.requires_grad_(grads).unbind(1)
        ops.attention(query, key, value, layout, implementation="aten")
    assert [tuple(x.shape) for x in given] == [(3, 2, 16, 16)] * 3
    assert {x.untyped_storage().data_ptr() for x in given} == {packed.untyped_storage().data_ptr()}


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("device", "length"), [("cpu", 17), pytest.param("cuda", 2048, marks=pytest.mark.gpu)]
)
def test_equal_lengths_are_within_budget(device: str, length: int, head_dim: int) -> None:
    case, layout = AttentionCase(head_dim=head_dim), Sequences.from_lengths([length] * 4)
    layout = layout.to(device)
    compare_outputs(
        case.attend(layout, torch.bfloat16, "aten" if device == "cpu" else None),
        partial(case.eager, layout=layout),
        case.attend(layout, torch.float64, "reference"),
        case.inputs(layout.num_tokens, torch.bfloat16, device),
        terms=max(head_dim, length),
    )
