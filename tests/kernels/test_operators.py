"""The kernels are well-behaved PyTorch operators: checked, and traced without a break."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops import gpu
from encoder_engine.packing import SelectedRows, Sequences

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not gpu.interpreted(), reason="neither a GPU nor TRITON_INTERPRET=1"
)
LAYOUT = Sequences.from_lengths([5, 0, 9], device=DEVICE)


def draw(*shape: int, grad: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    drawn = torch.randn(shape, generator=generator).to(DEVICE)
    return drawn.requires_grad_(grad)


def attention_arguments(
    seed: torch.Tensor | None, *, few: bool = False, tiled: bool = True, positions: bool = False
) -> tuple[Any, ...]:
    """Plain, with a seed, disentangled, or with few queries, global rows, a bias and more."""
    none = LAYOUT.cu_seqlens[:0]
    queries = SelectedRows(torch.tensor([0, 4, 7], device=DEVICE), LAYOUT)
    layout = [none] * 3
    if few:
        layout = [queries.rows, queries.within.cu_seqlens, queries.rows]
    if tiled:
        layout = [*(LAYOUT.tiles(size) for size in (64, 32, 32)), LAYOUT.cu_seqlens, *[none] * 5]
    if tiled and few:
        own = queries.within
        layout = [own.tiles(64), own.tiles(32), LAYOUT.tiles(32), own.cu_seqlens, queries.places]
        layout += [own.cu_seqlens, queries.places, own.tiles(32), none]
    query, key, value = draw(3 if few else 14, 2, 16), *(draw(14, 2 - few, 16) for _ in range(2))
    bias, slopes = (draw(2, 5), draw(2, grad=False)) if few else (None, None)
    numbers = (0.25, 0.0 if seed is None else 0.5, 3 if few else None, False, [0, 0], False)
    vectors: tuple[Any, ...] = (None, None, None)
    if positions:
        vectors = (draw(4, 2, 16), draw(4, 2, 16), torch.arange(7, device=DEVICE) % 4)
    tensors = (query, key, value, bias, slopes, seed, *vectors)
    return (*tensors, [LAYOUT.cu_seqlens, *layout], *numbers)


def masked_arguments(*, tiled: bool) -> tuple[Any, ...]:
    labels = torch.tensor([3, -100, 0, 39], device=DEVICE)
    options = (0.1, 0.01, -100, tiled, True, True)
    return (draw(4, 24), draw(40, 24), draw(40), labels, None, *options)


def embedding_arguments(*, segments: bool, positions: bool = True) -> tuple[Any, ...]:
    ids = torch.tensor([3, 0, 3, 8, 3], device=DEVICE)
    table = draw(2, 24) if segments else None
    places, bias = (torch.arange(5, device=DEVICE), draw(24)) if positions else (None, None)
    tables = (draw(9, 24), draw(10, 24) if positions else None, table, draw(24), bias)
    dropout = (SEED, 1e-5, 0.5) if segments else (None, 1e-5, 0.0)
    return (ids, places, ids % 2 if segments else None, *tables, *dropout)


SEED = torch.tensor([7], device=DEVICE)
OPERATORS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "layer_norm": (
        "layer_norm",
        (draw(6, 24), None, draw(24), draw(24), None, 1e-5, 0.0, False, True),
    ),
    "layer_norm dropout": (
        "layer_norm",
        (draw(6, 24), draw(6, 24), draw(24), None, SEED, 1e-5, 0.5, True, True),
    ),
    "rms_norm": ("layer_norm", (draw(6, 24), None, draw(24), None, None, 1e-6, 0.0, False, False)),
    "rms_norm dropout": (
        "layer_norm",
        (draw(6, 24), draw(6, 24), draw(24), None, SEED, 1e-6, 0.5, True, False),
    ),
    "embedding": ("embedding", embedding_arguments(segments=False)),
    "embedding without positions": (
        "embedding",
        embedding_arguments(segments=False, positions=False),
    ),
    "embedding dropout": ("embedding", embedding_arguments(segments=True)),
    "bias_gelu": ("activation", (draw(6, 24), draw(24), "gelu", False)),
    "bias_gelu tanh": ("activation", (draw(6, 24), None, "gelu_tanh", False)),
    "geglu": ("activation", (draw(6, 24), draw(24), "gelu", True)),
    "geglu tanh": ("activation", (draw(6, 24), None, "gelu_tanh", True)),
    "swiglu": ("activation", (draw(6, 24), draw(24), "silu", True)),
    "rotary": (
        "rotary",
        (draw(5, 2, 6), draw(5, 1, 6), draw(9, 6, grad=False), torch.arange(5).to(DEVICE), False),
    ),
    "masked projection": ("masked_cross_entropy", masked_arguments(tiled=False)),
    "masked projection tiled": ("masked_cross_entropy", masked_arguments(tiled=True)),
    "masked projection aten": ("masked_cross_entropy_aten", masked_arguments(tiled=False)),
    "masked projection aten tiled": ("masked_cross_entropy_aten", masked_arguments(tiled=True)),
    "pooling": (
        "pooling",
        (draw(14, 24), LAYOUT.cu_seqlens, LAYOUT.tiles(128), "mean", False),
    ),
    "pooling max normalized": (
        "pooling",
        (draw(14, 24), LAYOUT.cu_seqlens, LAYOUT.tiles(128), "max", True),
    ),
    "attention": ("attention", attention_arguments(None)),
    "attention dropout": ("attention", attention_arguments(SEED)),
    "attention terms": ("attention", attention_arguments(SEED, few=True)),
    "attention positions": ("attention", attention_arguments(None, positions=True)),
    "attention aten": ("attention_aten", attention_arguments(None, tiled=False)),
    "attention aten dropout": ("attention_aten", attention_arguments(SEED, tiled=False)),
    "attention aten terms": ("attention_aten", attention_arguments(SEED, few=True, tiled=False)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck_finds_nothing(name: str) -> None:
    import encoder_engine.kernels.activation.operator
    import encoder_engine.kernels.attention.operator
    import encoder_engine.kernels.embedding.operator
    import encoder_engine.kernels.layer_norm.operator
    import encoder_engine.kernels.masked_projection.operator
    import encoder_engine.kernels.pooling.operator
    import encoder_engine.kernels.rotary.operator

    import encoder_engine.ops.aten.attention
    import encoder_engine.ops.aten.masked_projection  # noqa: F401

    operator, arguments = OPERATORS[name]
    torch.library.opcheck(getattr(torch.ops.encoder_engine, operator).default, arguments)


def test_one_graph_forward_and_backward() -> None:
    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        heads = x.view(-1, 2, 12)
        mixed = ops.attention(heads, heads, heads, LAYOUT, implementation="triton")
        active = ops.bias_gelu(mixed.flatten(1), weight, implementation="triton")
        active = ops.geglu(active.repeat(1, 2), implementation="triton")
        active = ops.swiglu(active.repeat(1, 2), implementation="triton")
        active = ops.rms_norm(active, weight, epsilon=1e-6, implementation="triton")
        return ops.layer_norm(
            active, weight, None, epsilon=1e-5, residual_TD=x, implementation="triton"
        )

    x, weight = draw(14, 24), draw(24)
    expected = block(x, weight)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)(x, weight)
    torch.testing.assert_close(compiled, expected)
    grads = [torch.autograd.grad(y.square().sum(), (x, weight)) for y in (expected, compiled)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_layer_norms_dropout_drops_the_share_asked_for_and_backward_agrees(dropout: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(256, 64, device=DEVICE, requires_grad=True)
    weight = torch.ones(64, device=DEVICE)
    noise = draw(256, 64, grad=False)
    y = ops.layer_norm(
        x, weight, None, epsilon=1e-5, residual_TD=noise, dropout=dropout, implementation="triton"
    )
    (grad,) = torch.autograd.grad(y, x, draw(256, 64, grad=False))
    dropped = (grad == 0).float().mean().item()
    error = (dropout * (1 - dropout) / x.numel()) ** 0.5
    assert abs(dropped - dropout) < 5 * error


def test_dropout_is_a_function_of_the_generator() -> None:
    x = draw(14, 2, 16, grad=False)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(ops.attention(x, x, x, LAYOUT, dropout=0.3, implementation="triton"))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_attentions_dropout_gradient_is_that_of_the_mask_it_drew() -> None:
    query, key, value = (draw(14, 2, 16).double().float().detach() for _ in range(3))
    query, key, value = query.clone(), key.flip(0).clone(), value.roll(1, 0).clone()

    def run(v: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return ops.attention(query, key, v, LAYOUT, dropout=0.4, implementation="triton")

    # The output is linear in value: its gradient must be the transpose of the same kept weights.
    weights = draw(14, 2, 16, grad=False)
    value.requires_grad_()
    (grad,) = torch.autograd.grad(run(value), value, weights)
    other = torch.randn_like(value)
    forward = (run(other) * weights).sum()
    torch.testing.assert_close((grad * other).sum(), forward, rtol=1e-4, atol=1e-4)


@pytest.mark.exhaustive
def test_attention_gives_the_same_bits_on_every_run() -> None:
    layout = Sequences.from_lengths([36, 1], device=DEVICE)
    query, key, value, bias = draw(19, 2, 16), draw(37, 1, 16), draw(37, 1, 16), draw(2, 7)
    rows = SelectedRows(torch.arange(0, 37, 2, device=DEVICE), layout)
    runs = []
    for _ in range(20):
        torch.manual_seed(5)
        output = ops.attention(
            query, key, value, layout, window=20, dropout=0.2, relative_bias_HR=bias,
            query_rows=rows, implementation="triton",
        )  # fmt: skip
        leaves = (query, key, value, bias)
        runs.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


def test_few_queries_drop_what_all_of_them_drop() -> None:
    query, key, value = (draw(14, 2, 16, grad=False) for _ in range(3))
    rows = SelectedRows(torch.tensor([1, 6, 13], device=DEVICE), LAYOUT)
    outputs = []
    for queries, selected in ((query, None), (query[rows.rows], rows)):
        torch.manual_seed(3)
        outputs.append(
            ops.attention(
                queries,
                key,
                value,
                LAYOUT,
                dropout=0.5,
                query_rows=selected,
                implementation="triton",
            )
        )
    torch.testing.assert_close(outputs[0][rows.rows], outputs[1])


@pytest.mark.parametrize("tiled", [False, True])
def test_a_label_that_is_no_token_makes_the_loss_nan_where_values_are_not_looked_at(
    tiled: bool,
) -> None:
    from encoder_engine.kernels.masked_projection.operator import masked_cross_entropy

    labels = torch.tensor([3, 40, -100, -1, 2**40], device=DEVICE)
    loss, _, _ = masked_cross_entropy(
        draw(5, 24), draw(40, 24), None, labels, label_smoothing=0.0, z_loss=0.0, tiled=tiled,
        ignore_index=-100, predict=False, weight_gradient_VE=None,
    )  # fmt: skip
    assert loss.isnan().tolist() == [False, True, False, True, True]


def test_the_embedding_layer_is_one_graph_and_drops_the_same_backward() -> None:
    ids = torch.tensor([3, 0, 3, 8], device=DEVICE)
    tokens, positions, weight, bias = draw(9, 24), draw(10, 24), draw(24), draw(24)

    def layer(tokens: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return ops.embedding(
            ids,
            ids,
            None,
            token_weight_VE=tokens,
            position_weight_PE=positions,
            segment_weight_SE=None,
            norm_weight_E=weight,
            norm_bias_E=bias,
            epsilon=1e-5,
            dropout=0.5,
            implementation="triton",
        )

    torch.manual_seed(0)
    expected = layer(tokens, bias)
    torch.manual_seed(0)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(tokens, bias)
    torch.testing.assert_close(compiled, expected)
    for output in (expected, compiled):
        (grad,) = torch.autograd.grad(output.sum(), bias)
        torch.testing.assert_close(grad, 2.0 * (output != 0).sum(dim=0))


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("window", [None, 2])
def test_attention_takes_any_scale(scale: float, window: int | None) -> None:
    drawn = [draw(14, 2, 16).detach() * size for size in (1.0, 2.0, 3.0)]
    results = []
    for by in ("triton", "reference"):
        query, key, value = (x.double() if by == "reference" else x for x in drawn)
        leaves = [x.clone().requires_grad_() for x in (query, key, value)]
        output = ops.attention(
            leaves[0], leaves[1], leaves[2], LAYOUT, scale=scale, window=window, implementation=by
        )
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_global_rows_among_few_queries_are_one_graph() -> None:
    query, key, value = (draw(14, 2, 16).detach() * size for size in (1.0, 2.0, 3.0))
    queries, everywhere = (
        SelectedRows(torch.tensor(rows, device=DEVICE), LAYOUT) for rows in ([1, 4, 10], [0, 4])
    )

    def attend(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return ops.attention(
            *(query, key, value, LAYOUT),
            window=1,
            query_rows=queries,
            global_rows=everywhere,
            implementation="triton",
        )

    results = []
    for run in (attend, torch.compile(attend, backend="aot_eager", fullgraph=True)):
        leaves = query[queries.rows].requires_grad_(), key.clone().requires_grad_()
        output = run(*leaves)
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_a_row_that_sees_no_key_is_zero_and_has_no_part_in_a_gradient() -> None:
    query, key, value = (draw(80, 2, 16).detach()[:60] * size for size in (1.0, 2.0, 3.0))
    results = []
    # Ten keys, of which the rows from 13 on see none.
    for num_rows in (60, 13):
        layout = Sequences.from_lengths([num_rows], device=DEVICE)
        rows = SelectedRows.of_unattended(layout, [num_rows - 10])
        leaves = [x[:num_rows].clone().requires_grad_() for x in (query, key, value)]
        output = ops.attention(
            *(leaves[0], leaves[1], leaves[2], rows.sequences),
            window=3,
            query_rows=rows,
            implementation="triton",
        )
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for many, few in zip(*results, strict=True):
        torch.testing.assert_close(many[:13], few)
    assert not results[0][0][13:].any()


@pytest.mark.parametrize("lengths", [[30, 64, 1], [65], [200]])
def test_attentions_shapes_follow_the_longest_sequence(lengths: list[int]) -> None:
    from encoder_engine.kernels.attention.config import Extras, Longest, choose_launches

    layout = Sequences.from_lengths(lengths, device=DEVICE)
    longest = 1 << (layout.max_seqlen - 1).bit_length()
    query, key, value = (draw(layout.num_tokens, 1, 16, grad=False).half() for _ in range(3))
    launches = choose_launches(
        16, itemsize=2, extras=Extras(), longest=Longest(longest, longest), hopper=True
    )
    assert launches.query.block_rows == (64 if longest <= 64 else 128)
    output, expected = (
        ops.attention(query, key, value, layout, implementation=by).float()
        for by in ("triton", "reference")
    )
    torch.testing.assert_close(output, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("lengths", [[70, 0, 33], [64, 31]])
@pytest.mark.parametrize("group", [1, 2])
def test_attention_reads_whole_blocks_by_descriptors_and_no_neighbours(
    lengths: list[int], group: int
) -> None:
    from encoder_engine.kernels.attention.config import Launch
    from encoder_engine.kernels.common.pinned import pin

    layout = Sequences.from_lengths([*lengths, 40], device=DEVICE)
    rows = layout.num_tokens
    # Of a projection of all three together, as models store them: rows are apart.
    packed = draw(rows, 3 * 2, 16, grad=False).half()
    query, key, value = packed[:, :2], packed[:, 2 : 4 if group == 1 else 3], packed[:, 4:]
    value = value[:, : 2 // group].clone()
    value[-40:] = torch.nan
    with pin(attention_forward=Launch(64, 32, 4, 2, described=True)):
        output = ops.attention(query, key, value, layout, implementation="triton")
    expected = ops.attention(query, key, value, layout, implementation="reference")
    assert output[-40:].isnan().all()
    torch.testing.assert_close(output[:-40], expected[:-40], rtol=2e-3, atol=2e-3)


def test_attention_takes_one_row_that_stands_for_many() -> None:
    from encoder_engine.kernels.attention.config import Launch
    from encoder_engine.kernels.common.pinned import pin

    layout = Sequences.from_lengths([40], device=DEVICE)
    query, value = (draw(40, 2, size, grad=False).half() for size in (16, 16))
    key = draw(1, 2, 16, grad=False).half().expand(40, 2, 16)
    with pin(attention_forward=Launch(64, 32, 4, 2, described=True)):
        output = ops.attention(query, key, value, layout, implementation="triton")
    expected = ops.attention(query, key, value, layout, implementation="reference")
    torch.testing.assert_close(output, expected, rtol=2e-3, atol=2e-3)
