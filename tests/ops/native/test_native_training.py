"""Training by the C++ extension: bits, kept memory, tied gradients, and what is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.ops import testing as ops_testing
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.cases import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(
    native_instruction_set() is None, reason="the extension is not built"
)
LENGTHS = [70, 1, 0, 130, 33]
NUM_ROWS, WIDTH, HEADS, VOCAB = sum(LENGTHS), 96, 3, 700


@pytest.fixture
def with_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def step(dtype: torch.dtype, dropout: float) -> tuple[bytes, ...]:
    """Take the gradients of an encoder's operations, one after the other; return their bits."""
    torch.manual_seed(5)
    layout = Sequences.from_lengths(LENGTHS)
    names = {
        "table": (VOCAB, WIDTH),
        "positions": (200, WIDTH),
        "norm": (WIDTH,),
        "norm_bias": (WIDTH,),
        "qkv": (3 * WIDTH, WIDTH),
        "qkv_bias": (3 * WIDTH,),
        "up": (200, WIDTH),
        "up_bias": (200,),
        "down": (WIDTH, 100),
    }
    weights = {
        name: (0.1 * rows(*shape, seed=place, dtype=torch.float32, device="cpu")).requires_grad_()
        for place, (name, shape) in enumerate(names.items())
    }
    ids = torch.arange(NUM_ROWS) * 37 % VOCAB
    picked = SelectedRows(torch.arange(0, NUM_ROWS, 3), layout)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = ops.embedding(
            *(ids, layout.positions, None),
            token_weight_VE=weights["table"],
            position_weight_PE=weights["positions"],
            segment_weight_SE=None,
            norm_weight_E=weights["norm"],
            norm_bias_E=weights["norm_bias"],
            epsilon=1e-12,
            dropout=dropout,
        )
        joint = ops.linear(hidden, weights["qkv"], weights["qkv_bias"])
        query, key, value = joint.view(NUM_ROWS, 3, HEADS, -1).unbind(1)
        query = F.embedding(picked.rows, query.flatten(1)).view(-1, HEADS, query.shape[2])
        mixed = ops.attention(query, key, value, layout, query_rows=picked, dropout=dropout)
        hidden = ops.layer_norm(
            *(mixed.flatten(1), weights["norm"], weights["norm_bias"]),
            epsilon=1e-12,
            residual_TD=F.embedding(picked.rows, hidden),
            dropout=dropout,
        )
        raised = ops.geglu(ops.linear(hidden, weights["up"]), weights["up_bias"])
        hidden = ops.linear(raised, weights["down"])
        every = torch.arange(len(picked))
        loss = ops.masked_cross_entropy(hidden.float(), every, ids[picked.rows], weights["table"])
    grads = torch.autograd.grad(loss, list(weights.values()))
    return (loss.detach().numpy().tobytes(), *(x.numpy().tobytes() for x in grads))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_do_not_depend_on_the_number_of_threads(
    dtype: torch.dtype, dropout: float, with_threads: Callable[[int], None]
) -> None:
    found = []
    for threads in (1, 2, 3, 1):
        with_threads(threads)
        # Asked for: on portable instructions PyTorch's are chosen, which sum by threads.
        with ops.use("native"):
            found.append(step(dtype, dropout))
    assert all(one == found[0] for one in found)


def test_memory_of_a_step_is_used_again() -> None:
    from encoder_engine import _native
    from encoder_engine.ops.native import kept

    _native.release_kept_memory()
    first = kept.empty(300, 1000, dtype=torch.float32)
    place = first.data_ptr()
    del first
    second = kept.empty(310, 1000, dtype=torch.float32)
    assert second.data_ptr() == place
    third = kept.zeros(300, 1000, dtype=torch.float32)
    assert third.data_ptr() != place
    assert not third.any()
    del second, third
    assert _native.release_kept_memory() >= 2 * 300 * 4000
    assert _native.release_kept_memory() == 0


@pytest.mark.parametrize("shape", [(0, 5), (3,), (200, 300)])
def test_kept_tensors_can_be_changed_in_place_copied_and_saved(shape: tuple[int, ...]) -> None:
    import io

    from encoder_engine.ops.native import kept

    x = kept.empty(*shape, dtype=torch.bfloat16).fill_(2.0)
    assert not x._is_view()
    box = io.BytesIO()
    torch.save(x, box)
    box.seek(0)
    assert torch.equal(torch.load(box), x.clone())


def tied_loss(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    ones = torch.ones(table.shape[1], dtype=table.dtype)
    hidden = ops.embedding(
        *(ids, None, None),
        token_weight_VE=table,
        position_weight_PE=None,
        segment_weight_SE=None,
        norm_weight_E=ones,
        norm_bias_E=None,
        epsilon=1e-12,
    )
    return ops.masked_cross_entropy(hidden, torch.arange(len(ids)), ids.flip(0), table)


@pytest.mark.parametrize("others", ["nothing", "before", "after", "apart"])
def test_gradients_of_a_tied_table_add_up_whatever_else_reads_it(others: str) -> None:
    ids = torch.arange(40) % 9
    drawn = rows(50, 16, seed=0, dtype=torch.float32, device="cpu")

    def total(table: torch.Tensor) -> torch.Tensor:
        loss = tied_loss(table, ids)
        if others == "before":
            loss = table.square().sum() + loss
        elif others == "after":
            loss = loss + table.square().sum() + tied_loss(table, ids[:7])
        return loss

    table = drawn.clone().requires_grad_()
    if others == "apart":
        # The gradient of an earlier backward pass must not change.
        (first,) = torch.autograd.grad(tied_loss(table, ids), table)
        before = first.clone()
        torch.autograd.grad(tied_loss(table, ids[:5]), table)
        assert torch.equal(first, before)
    torch.autograd.backward(total(table))
    with ops.use("aten"):
        expected = drawn.clone().requires_grad_()
        torch.autograd.backward(total(expected))
    truth = drawn.double().requires_grad_()
    torch.autograd.backward(total(truth))
    assert table.grad is not None
    assert expected.grad is not None
    assert truth.grad is not None
    ops_testing.assert_within_budget(table.grad, expected.grad, truth.grad, terms=120)


def draw_kept(dropout: float, seed: int, num_rows: int, width: int) -> torch.Tensor:
    """Return which features a norm keeps."""
    torch.manual_seed(seed)
    ones = torch.ones(num_rows, width)
    arguments: dict[str, Any] = {"epsilon": 1.0, "return_sum": True, "dropout": dropout}
    summed: torch.Tensor = ops.layer_norm(ones, torch.ones(width), None, **arguments)[1]
    return summed > 0.5


def test_dropped_features_are_independent_of_their_neighbours() -> None:
    dropout, num_rows, width = 0.25, 2000, 200
    kept = draw_kept(dropout, 0, num_rows, width).double() - (1.0 - dropout)
    variance, count = dropout * (1.0 - dropout), num_rows * width
    assert abs(kept.mean()) < 5.0 * (variance / count) ** 0.5
    # Lanes, words and calls: neighbours at every distance that shares a draw, and rows.
    for distance in (1, 2, 4, 8, 16, 32, 48, 64, 128):
        both = (kept[:, distance:] * kept[:, :-distance]).mean()
        assert abs(both) < 5.0 * variance / (num_rows * (width - distance)) ** 0.5, distance
    for distance in (1, 2, 4):
        both = (kept[distance:] * kept[:-distance]).mean()
        assert abs(both) < 5.0 * variance / ((num_rows - distance) * width) ** 0.5, distance
    # Pearson's test of the number kept in each column.
    counts = (kept + (1.0 - dropout)).sum(0)
    chi_square = float(((counts - num_rows * (1 - dropout)) ** 2 / (num_rows * variance)).sum())
    assert abs(chi_square - width) < 5.0 * (2.0 * width) ** 0.5
    assert not torch.equal(draw_kept(dropout, 1, 20, width), draw_kept(dropout, 2, 20, width))


def test_attention_weights_are_dropped_alike_forward_and_backward() -> None:
    layout, dropout = Sequences.from_lengths([40, 7, 64, 90]), 0.3
    query = rows(201, 2, 16, seed=0, dtype=torch.float32, device="cpu")
    value = rows(201, 2, 16, seed=1, dtype=torch.float32, device="cpu").requires_grad_()
    grads = rows(201, 2, 16, seed=2, dtype=torch.float32, device="cpu")
    torch.manual_seed(3)
    output = ops.attention(query, query, value, layout, dropout=dropout)
    (grad_value,) = torch.autograd.grad(output, value, grads)
    # The output is linear in value: <W value, g> = <value, W' g> for the same dropped W alone.
    output, value = output.detach(), value.detach()
    one, other = (grads.double() * output).sum(), (value.double() * grad_value).sum()
    size = float((grads * output).abs().sum())
    assert abs(float(one - other)) < size * torch.finfo(torch.float32).eps * 90**0.5
