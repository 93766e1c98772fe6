"""Steps of plans that decoders add: norms of heads, scaled tokens, keys of a shared prefix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.testing import assert_within_budget
from tests.ops.cases import dtype_id, rows, sequences
from tests.ops.native.batches import LENGTHS, new_plan, refused, run
from tests.selection import unless

DTYPES = [torch.float32, torch.bfloat16]
EPSILON = 1e-6
NOTHING = ("segment_weight_SE", "norm_weight_E", "norm_bias_E")


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("head_dim", [5, 16, 70])
@pytest.mark.parametrize("centred", [False, True], ids=["rms", "layer"])
def test_norms_of_heads_are_the_operation(dtype: torch.dtype, head_dim: int, centred: bool) -> None:
    layout = sequences(LENGTHS, "cpu")
    half, num_heads, width = dtype == torch.bfloat16, 3, 5 * head_dim
    heads = rows(layout.num_tokens, width, seed=0, dtype=dtype, device="cpu")
    weight = rows(1, head_dim, seed=1, dtype=dtype, device="cpu")[0]
    bias = rows(1, head_dim, seed=2, dtype=dtype, device="cpu")[0] if centred else None
    plan = new_plan()
    buffer = plan.add_buffer(width * dtype.itemsize)
    plan.activate(half, "none", False, width, 0, buffer)
    plan.normalize_heads(
        *(half, weight.data_ptr(), 0 if bias is None else bias.data_ptr(), head_dim, num_heads),
        *(width, head_dim, EPSILON, centred, buffer),
    )
    plan.activate(half, "none", False, width, buffer, 1)
    found = run(plan, torch.full_like(heads, torch.nan), layout, source=heads)
    # The second to the fourth of five heads.
    inner = heads[:, head_dim : 4 * head_dim].reshape(-1, head_dim)
    if bias is None:
        normal = ops.rms_norm(inner, weight, epsilon=EPSILON, implementation="native")
    else:
        normal = ops.layer_norm(inner, weight, bias, epsilon=EPSILON, implementation="native")
    expected = heads.clone()
    expected[:, head_dim : 4 * head_dim] = normal.view(len(heads), -1)
    assert torch.equal(found, expected)


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("implementation", ["native", "aten"])
def test_scaled_tokens_are_within_budget(dtype: torch.dtype, implementation: str) -> None:
    ids = torch.randint(0, 20, (63,))
    table = rows(20, 37, seed=0, dtype=dtype, device="cpu")
    places = rows(63, 37, seed=1, dtype=dtype, device="cpu")
    scale = torch.rand(63)

    def embed(by: str, token_VE: torch.Tensor, place_PE: torch.Tensor) -> torch.Tensor:
        return ops.embedding(
            *(ids, torch.arange(63), None),
            token_weight_VE=token_VE,
            position_weight_PE=place_PE,
            segment_weight_SE=None,
            norm_weight_E=None,
            norm_bias_E=None,
            epsilon=0.0,
            token_scale_T=scale.to(torch.promote_types(token_VE.dtype, torch.float32)),
            implementation=by,
        )

    truth = embed("reference", table.double(), places.double())
    eager = (table[ids] * scale[:, None]).to(dtype) + places
    assert_within_budget(embed(implementation, table, places), eager, truth, terms=2)


def test_factors_of_another_form_are_refused() -> None:
    table, ids = torch.randn(4, 8), torch.tensor([0, 1])
    named: dict[str, Any] = dict.fromkeys(NOTHING)
    for wrong in (
        torch.ones(3),
        torch.ones(2, dtype=torch.float64),
        torch.ones(2).requires_grad_(),
    ):
        with pytest.raises(ShapeError, match="token_scale must be"):
            ops.embedding(
                *(ids, None, None),
                token_weight_VE=table,
                position_weight_PE=None,
                **named,
                epsilon=0.0,
                token_scale_T=wrong,
            )


@unless(refused)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("window", [-1, 6])
def test_attention_over_keys_is_that_of_whole_texts(dtype: torch.dtype, window: int) -> None:
    half, heads, key_heads, head_dim, prefix = dtype == torch.bfloat16, 4, 2, 16, 7
    width = (heads + 2 * key_heads) * head_dim
    lengths = [5, 1, 20]
    tokens = rows(prefix + sum(lengths), width, seed=0, dtype=dtype, device="cpu")
    layout = sequences([prefix, *lengths], "cpu")
    starts = layout.cu_seqlens.tolist()
    shared = list(range(prefix))
    of_texts = [shared] + [[*shared, *range(starts[i], starts[i + 1])] for i in (1, 2, 3)]
    key_tokens = torch.tensor([token for one in of_texts for token in one], dtype=torch.int32)
    whole = sequences([len(one) for one in of_texts], "cpu")
    own = [len(shared)] + [len(one) - prefix for one in of_texts[1:]]
    ends = whole.cu_seqlens[1:].tolist()
    token_keys = [key for end, n in zip(ends, own, strict=True) for key in range(end - n, end)]
    plan = new_plan()
    keys = plan.add_buffer(2 * key_heads * head_dim * dtype.itemsize, "keys")
    plan.take_heads(half, 2 * key_heads * head_dim, (0, heads * head_dim, width), keys)
    row = 2 * key_heads * head_dim
    plan.attend(
        *(half, heads, key_heads, head_dim, head_dim**-0.5, (0, 0, width)),
        *((keys, 0, row), (keys, key_heads * head_dim, row), 1),
        window=window,
        causal=True,
    )
    target = torch.full((len(tokens), heads * head_dim), torch.nan, dtype=dtype)
    given = {"key_tokens": key_tokens, "cu_keys": whole.cu_seqlens}
    given["token_keys"] = torch.tensor(token_keys, dtype=torch.int32)
    found = run(plan, target, layout, source=tokens, **given)
    parts = tokens[key_tokens.long()].view(-1, heads + 2 * key_heads, head_dim)
    query, key, value = torch.split(parts, [heads, key_heads, key_heads], dim=1)
    expected = ops.attention(
        *(query, key, value, whole),
        window=None if window < 0 else window,
        causal=True,
        implementation="native",
    )
    assert torch.equal(found, expected[token_keys].flatten(1))
    del given["key_tokens"]
    with pytest.raises(ValueError, match="pass key_tokens"):
        run(plan, target, layout, source=tokens, **given)


@unless(refused)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("width", [1, 17, 200, 1000])
def test_softmax_sums_are_those_of_all_pieces(half: bool, width: int) -> None:
    from encoder_engine import _native

    dtype = torch.bfloat16 if half else torch.float32
    logits = (20.0 * torch.randn(9, 3 * width)).to(dtype)
    largest, sums = np.full(9, -np.inf, np.float32), np.zeros(9, np.float32)
    for piece in torch.split(logits, width, dim=1):
        part = piece.contiguous()
        _native.add_softmax_sums(
            *(half, part.data_ptr(), largest.ctypes.data, sums.ctypes.data, 9, width, 2)
        )
    truth = torch.logsumexp(logits.double(), 1)
    found = torch.from_numpy(largest + np.log(sums))
    assert_within_budget(found, torch.logsumexp(logits.float(), 1), truth, terms=3 * width)


@unless(refused)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("width", [1, 17, 200])
def test_softmax_sums_of_nan_are_nan_in_every_piece(half: bool, width: int) -> None:
    from encoder_engine import _native

    dtype = torch.bfloat16 if half else torch.float32
    pieces = torch.randn(3, 7, width).to(dtype)
    pieces[0, 0] = torch.nan
    pieces[1, 1] = torch.nan
    # In the last vector alone, and before -infinity.
    pieces[0, 2, -16:] = torch.nan
    pieces[0, 3, 1:] = -torch.inf
    pieces[0, 3, 0] = torch.nan
    pieces[0, 4] = -torch.inf
    pieces[:, 5] = -torch.inf
    largest, sums = np.full(7, -np.inf, np.float32), np.zeros(7, np.float32)
    for piece in pieces:
        _native.add_softmax_sums(
            *(half, piece.data_ptr(), largest.ctypes.data, sums.ctypes.data, 7, width, 1)
        )
    assert np.isnan(sums).tolist() == [True, True, True, True, False, False, False]
    assert sums[5] == 0.0
