"""The sparse masked-token head: both ways of computing it, within the numeric budget."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import BatchError, ShapeError, TokenIdError
from encoder_engine.ops.masked_projection import MaskedProjectionFacts, choose_mode
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    dtype_id,
    implementations,
    refusal,
    rows,
    skip_if_refused,
)
from tests.ops.compare import compare
from tests.ops.masked_cases import MaskedCase, draw_case, hold_to_budget, ours
from tests.ops.memory import peak_bytes
from tests.selection import unless

OPERATION = "masked_cross_entropy"
MODES: tuple[ops.ProjectionMode, ...] = get_args(ops.ProjectionMode)
# Of each mode: the interpreter takes a hundred times as long, and has fewer and smaller ones.
NUM_CASES = {"native": 600, "aten": 1200, "triton": 60}
GROUPS = {"native": 60, "aten": 60, "triton": 15}
# Groups come in fours: whole or in parts, by oneDNN or not. Kernels know of neither.
NUM_SHORT = {"native": 240, "aten": 240, "triton": 15}


def refused(
    by: str,
    device: str,
    dtype: torch.dtype = torch.float32,
    mode: ops.ProjectionMode = "stored",
) -> str | None:
    facts = MaskedProjectionFacts(
        device=device, dtype=dtype_id(dtype), requires_grad=True, tiled=mode == "tiled"
    )
    return refusal(OPERATION, by, facts)


def refused_mode(by: str, mode: ops.ProjectionMode) -> str | None:
    return refused(by, "cpu", mode=mode)


def refused_in_a_trace(by: str, mode: ops.ProjectionMode) -> str | None:
    facts = MaskedProjectionFacts(requires_grad=True, transformed=True, tiled=mode == "tiled")
    return refusal(OPERATION, by, facts)


def refused_by_triton(device: str, dtype: torch.dtype) -> str | None:
    return refused("triton", device, dtype)


def skip_if_not_here(by: str, dtype: torch.dtype, device: str) -> None:
    facts = MaskedProjectionFacts(device=device, dtype=dtype_id(dtype), requires_grad=True)
    skip_if_refused(OPERATION, by, facts)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("by", "first"),
    [
        pytest.param(by, first, marks=[pytest.mark.exhaustive] * (first >= NUM_SHORT[by]))
        for by in implementations(OPERATION)
        for first in range(0, NUM_CASES[by], GROUPS[by])
    ],
)
def test_drawn_cases_are_within_budget(
    by: str, first: int, mode: ops.ProjectionMode, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = GROUPS[by]
    if first % (2 * group):
        # As for a large vocabulary: several parts, the last of them short.
        monkeypatch.setattr("encoder_engine.ops.aten.masked_projection.PART_LOGITS", 0)
        monkeypatch.setattr("encoder_engine.ops.aten.masked_projection.PART_COLUMNS", 64)
    by_onednn = first % (4 * group) < 2 * group
    monkeypatch.setattr("encoder_engine.ops.aten.linear.PART", 64)
    monkeypatch.setattr("encoder_engine.ops.cpu.is_amd", lambda: by_onednn)
    interpreted = by == "triton" and device == "cpu"
    dtypes = [torch.float32, torch.float16] if interpreted else DTYPES
    if by == "triton" and not interpreted:
        dtypes = DTYPES[1:]
    if by == "native":
        dtypes = [torch.float32, torch.bfloat16]
    for seed in range(first, first + group):
        case = draw_case(seed, dtypes=dtypes, most=24 if interpreted else 40, device=device)
        try:
            hold_to_budget(case, by, mode)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
@pytest.mark.parametrize(
    ("num_rows", "width", "vocab_size"), [(1, 64, 1), (63, 100, 129), (130, 64, 300)]
)
def test_awkward_sizes_are_within_budget(
    num_rows: int,
    width: int,
    vocab_size: int,
    by: str,
    mode: ops.ProjectionMode,
    dtype: torch.dtype,
    device: str,
) -> None:
    case = MaskedCase(
        num_tokens=2 * num_rows,
        num_rows=num_rows,
        width=width,
        vocab_size=vocab_size,
        dtype=dtype,
        device=device,
    )
    hold_to_budget(case, by, mode)


@unless(refused_by_triton)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=dtype_id)
def test_the_kernels_go_through_a_vocabulary_of_several_parts(
    dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encoder_engine.kernels.masked_projection.backward.PART_COLUMNS", 256)
    case = MaskedCase(
        num_tokens=9,
        num_rows=5,
        width=20,
        vocab_size=700,
        dtype=dtype,
        device=device,
        label_smoothing=0.1,
    )
    hold_to_budget(case, "triton", "tiled")


@pytest.mark.parametrize("rows_in_blocks", [1, 2, 40, 79, 132, 150, 1000])
@pytest.mark.parametrize("num_tiles", [1, 7, 239, 1954])
def test_splits_of_the_vocabulary_are_bounded_and_cover_it(
    rows_in_blocks: int, num_tiles: int
) -> None:
    pytest.importorskip("triton")
    from encoder_engine.kernels.masked_projection.config import MOST_SPLITS, tiles_of_a_split

    tiles = tiles_of_a_split(rows_in_blocks, num_tiles, 132)
    splits = -(-num_tiles // tiles)
    assert 1 <= splits <= MOST_SPLITS
    # No worse than leaving the vocabulary whole.
    assert -(-rows_in_blocks * splits // 132) * (tiles + 0.5) <= -(-rows_in_blocks // 132) * (
        num_tiles + 0.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("vocab_size", "width", "mode"),
    [
        (30522, 256, "stored"),
        (250002, 64, "tiled"),
        *(
            pytest.param(*sizes, mode, marks=pytest.mark.exhaustive)
            for *sizes, mode in (
                (30522, 256, "tiled"),
                (250002, 64, "stored"),
                (4099, 1024, "stored"),
                (4099, 1024, "tiled"),
            )
        ),
    ],
)
def test_real_vocabularies_are_within_budget(
    vocab_size: int, width: int, mode: ops.ProjectionMode, device: str
) -> None:
    case = MaskedCase(num_tokens=20, num_rows=9, width=width, vocab_size=vocab_size, device=device)
    by = "triton" if device == "cuda" else "native" if mode == "stored" else "aten"
    hold_to_budget(case, by, mode)


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_a_transform_is_within_budget_with_every_gradient(
    by: str, mode: ops.ProjectionMode
) -> None:
    skip_if_not_here(by, torch.float32, "cpu")
    inputs = {
        "hidden": rows(30, 48, seed=0, dtype=torch.float32, device="cpu"),
        "dense": rows(32, 48, seed=1, dtype=torch.float32, device="cpu") * 0.2,
        "dense_bias": rows(32, seed=2, dtype=torch.float32, device="cpu"),
        "norm": rows(32, seed=3, dtype=torch.float32, device="cpu"),
        "norm_bias": rows(32, seed=4, dtype=torch.float32, device="cpu"),
        "weight": rows(70, 32, seed=5, dtype=torch.float32, device="cpu") * 0.2,
        "bias": rows(70, seed=6, dtype=torch.float32, device="cpu"),
    }
    picked, labels = torch.arange(0, 30, 3), torch.arange(10) * 7

    def run(by: str, **x: torch.Tensor) -> torch.Tensor:
        head = ops.Transform(
            weight_ED=x["dense"],
            bias_E=x["dense_bias"],
            norm_weight_E=x["norm"],
            norm_bias_E=x["norm_bias"],
            epsilon=1e-12,
        )
        return ops.masked_cross_entropy(
            x["hidden"], picked, labels, x["weight"], x["bias"], transform=head, mode=mode,
            implementation=by,
        )  # fmt: skip

    def eager(**x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(F.linear(x["hidden"][picked], x["dense"], x["dense_bias"]))
        y = F.layer_norm(y, (32,), x["norm"], x["norm_bias"], 1e-12)
        return F.cross_entropy(F.linear(y, x["weight"], x["bias"]), labels)

    compare(lambda **x: run(by, **x), eager, lambda **x: run("reference", **x), inputs, terms=160)


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_gradients_of_a_tied_embedding_add_up(by: str, mode: ops.ProjectionMode) -> None:
    skip_if_not_here(by, torch.float32, "cpu")
    ids, labels = torch.tensor([4, 9, 9, 2, 30]), torch.tensor([7, 9])

    def gradient(dtype: torch.dtype, by: str | None) -> torch.Tensor:
        torch.manual_seed(0)
        tokens = torch.nn.Embedding(31, 16).to(dtype)
        hidden, picked = torch.tanh(tokens(ids)), torch.tensor([1, 4])
        if by is None:
            loss = F.cross_entropy(F.linear(hidden[picked], tokens.weight), labels)
        else:
            loss = ops.masked_cross_entropy(
                hidden, picked, labels, tokens.weight, mode=mode, implementation=by
            )
        torch.autograd.backward(loss)
        assert tokens.weight.grad is not None
        return tokens.weight.grad

    truth = gradient(torch.float64, "reference")
    eager = gradient(torch.float32, None)
    assert_within_budget(gradient(torch.float32, by), eager, truth, terms=31 + 16)


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", [*implementations(OPERATION), "reference"])
def test_the_weights_gradient_adds_up_in_float32_where_a_buffer_is_given(
    by: str, mode: ops.ProjectionMode
) -> None:
    case = MaskedCase(num_tokens=30, num_rows=20, width=24, vocab_size=90, dtype=torch.float16)
    skip_if_not_here(by, case.dtype, "cpu")
    picked, labels = case.targets()
    leaves = {name: x.requires_grad_() for name, x in case.inputs().items()}
    buffer = torch.zeros(90, 24)
    losses = [
        ops.masked_cross_entropy(
            leaves["hidden"], picked, labels, leaves["weight"], leaves["bias"], mode=mode,
            weight_gradient_VE=buffer, implementation=by,
        )
        for _ in range(2)
    ]  # fmt: skip
    for loss in losses:
        torch.autograd.backward(loss)
    assert leaves["weight"].grad is None
    assert leaves["hidden"].grad is not None

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        given = {name: x.detach().to(dtype).requires_grad_() for name, x in leaves.items()}
        logits = F.linear(given["hidden"][picked], given["weight"], given["bias"])
        loss = F.cross_entropy(logits.to(torch.promote_types(dtype, torch.float32)), labels)
        return 2 * torch.autograd.grad(loss, given["weight"])[0]

    truth, eager = gradient(torch.float64), gradient(torch.float16).float()
    size = largest(truth, *(x.detach() for x in leaves.values()))
    assert_within_budget(buffer, eager, truth, terms=90 + 24 + 20, size=size)


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", [*implementations(OPERATION), "reference"])
def test_predictions_and_likelihoods_come_on_request(by: str, mode: ops.ProjectionMode) -> None:
    case = MaskedCase(num_tokens=40, num_rows=30, width=16, vocab_size=150)
    skip_if_not_here(by, case.dtype, "cpu")
    picked, labels = case.targets()
    given = {name: x.requires_grad_() for name, x in case.inputs().items()}
    found = ops.masked_cross_entropy(
        given["hidden"], picked, labels, given["weight"], given["bias"], label_smoothing=0.3,
        z_loss=0.1, return_predictions=True, mode=mode, implementation=by,
    )  # fmt: skip
    given = {name: x.detach() for name, x in given.items()}
    logits = F.linear(given["hidden"][picked], given["weight"], given["bias"])
    assert torch.equal(found.predictions_M, logits.argmax(dim=1))
    eager, truth = (F.cross_entropy(x, labels, reduction="none") for x in (logits, logits.double()))
    assert_within_budget(found.nll_M, eager, truth, terms=150 + 16)
    assert bool((labels == -100).any())
    smooth = replace(case, label_smoothing=0.3, z_loss=0.1)
    given = {name: x.requires_grad_() for name, x in given.items()}
    assert torch.equal(found.loss, ours(smooth, by, mode, **given))


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", [*implementations(OPERATION), "reference"])
@pytest.mark.parametrize("num_rows", [0, 3])
def test_where_nothing_counts_the_mean_is_nan_as_in_torch_and_gradients_are_zero(
    num_rows: int, by: str, mode: ops.ProjectionMode
) -> None:
    case = MaskedCase(num_tokens=5, num_rows=num_rows, width=8, vocab_size=20)
    skip_if_not_here(by, case.dtype, "cpu")
    leaves = {name: x.requires_grad_() for name, x in case.inputs().items()}
    nothing = torch.full((num_rows,), -100)
    results: list[tuple[ops.Reduction, float]] = [("mean", torch.nan), ("sum", 0.0)]
    for reduction, expected in results:
        loss = ops.masked_cross_entropy(
            leaves["hidden"], torch.arange(num_rows), nothing, leaves["weight"], leaves["bias"],
            label_smoothing=0.1, z_loss=0.1, reduction=reduction, mode=mode, implementation=by,
        )  # fmt: skip
        torch.testing.assert_close(loss, torch.tensor(expected), equal_nan=True, rtol=0, atol=0)
        for grad in torch.autograd.grad(loss, list(leaves.values())):
            assert not grad.any()


# These have every reduction, and none, some and all of the smoothing and of the z-loss.
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=[pytest.mark.exhaustive] * (n not in (2, 3, 5, 6))) for n in range(8)],
)
def test_gradcheck_in_float64(seed: int, mode: ops.ProjectionMode) -> None:
    drawn = draw_case(seed, dtypes=[torch.float64], most=6, device="cpu")
    case = replace(drawn, num_rows=drawn.num_rows + 1, has_bias=True)
    leaves = [x.requires_grad_() for x in case.inputs().values()]
    torch.autograd.gradcheck(lambda *x: ours(case, "aten", mode, *x), leaves)


@unless(refused_mode)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_backward_can_run_again_and_gives_the_same_bits(by: str, mode: ops.ProjectionMode) -> None:
    case = MaskedCase(num_tokens=40, num_rows=30, width=16, vocab_size=150)
    skip_if_not_here(by, case.dtype, "cpu")
    leaves = [x.requires_grad_() for x in case.inputs().values()]
    loss = ours(case, by, mode, *leaves)
    first, second = (torch.autograd.grad(loss, leaves, retain_graph=True) for _ in range(2))
    again = torch.autograd.grad(ours(case, by, mode, *leaves), leaves)
    for one, two, three in zip(first, second, again, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("by", [*implementations(OPERATION), "reference"])
def test_only_the_gradients_asked_for_are_computed(by: str) -> None:
    case = MaskedCase(num_tokens=9, num_rows=5, width=8, vocab_size=20)
    skip_if_not_here(by, case.dtype, "cpu")
    for mode in MODES if by == "reference" else [m for m in MODES if refused_mode(by, m) is None]:
        for wanted in ("hidden", "weight", "bias"):
            given = case.inputs()
            given[wanted].requires_grad_()
            torch.autograd.backward(ours(case, by, mode, **given))
            assert [name for name, x in given.items() if x.grad is not None] == [wanted]


def case_bytes(case: MaskedCase, mode: ops.ProjectionMode) -> int:
    """Most bytes held at once in forward and backward, beyond inputs and their gradients."""
    given = {name: x.requires_grad_() for name, x in case.inputs().items()}
    peak = peak_bytes(lambda: torch.autograd.backward(ours(case, "aten", mode, **given)))
    return peak - sum(x.numel() * x.element_size() for x in given.values())


def test_tiled_memory_does_not_grow_with_the_vocabulary() -> None:
    sizes = (30_000, 300_000)
    case = MaskedCase(num_tokens=64, num_rows=48, width=32, vocab_size=sizes[0])
    tiled = [case_bytes(replace(case, vocab_size=size), "tiled") for size in sizes]
    stored = [case_bytes(replace(case, vocab_size=size), "stored") for size in sizes]
    assert 0 < tiled[1] <= tiled[0] + 4096, tiled
    assert stored[1] >= 48 * sizes[1] * 4 > tiled[1], (stored, tiled)


def test_logits_are_stored_until_they_are_many() -> None:
    assert choose_mode(5_000, 30_522, 2) == "stored"
    assert choose_mode(5_000, 250_002, 2) == "tiled"
    assert choose_mode(0, 250_002, 4) == "stored"


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_more_than_two_to_the_31_logits_are_addressed(mode: ops.ProjectionMode) -> None:
    num_rows, vocab_size = 70_000, 32_003
    hidden = rows(num_rows, 64, seed=0, dtype=torch.float16, device="cuda").requires_grad_()
    weight = rows(vocab_size, 64, seed=1, dtype=torch.float16, device="cuda") / 8
    places = torch.arange(num_rows, device="cuda")
    labels = places % vocab_size

    def run(picked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = ops.masked_cross_entropy(
            hidden, picked, labels[picked], weight, reduction="none", mode=mode
        )
        return loss.detach()[-3:], torch.autograd.grad(loss.sum(), hidden)[0][-3:]

    for many, few in zip(run(places), run(places[-3:]), strict=True):
        # Another number of rows makes the vendor's library sum in another order.
        torch.testing.assert_close(many, few)


@unless(refused_in_a_trace)
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_one_graph_serves_every_number_of_rows(by: str, mode: ops.ProjectionMode) -> None:
    skip_if_not_here(by, torch.float32, "cpu")
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graphs.append(num_rows)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def head(
        hidden: torch.Tensor, picked: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        return ops.masked_cross_entropy(
            hidden, picked, labels, weight, label_smoothing=0.1, mode=mode, implementation=by
        )

    compiled = torch.compile(head, fullgraph=True, dynamic=True, backend=backend)
    for num_rows in (5, 9, 12):
        case = MaskedCase(num_tokens=20, num_rows=num_rows, width=8, vocab_size=70, has_bias=False)
        leaves = [x.requires_grad_() for x in case.inputs().values()]
        targets = case.targets()
        expected, found = (f(leaves[0], *targets, leaves[1]) for f in (head, compiled))
        assert torch.equal(expected, found)
        grads = [torch.autograd.grad(loss, leaves) for loss in (expected, found)]
        for one, other in zip(*grads, strict=True):
            assert torch.equal(one, other)
    assert set(graphs) == {5}, "another number of rows was compiled again"


@unless(refused_in_a_trace)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_a_label_that_is_no_token_makes_the_loss_nan_in_a_graph(
    by: str, mode: ops.ProjectionMode
) -> None:
    skip_if_not_here(by, torch.float32, "cpu")
    hidden, weight = torch.randn(5, 8), torch.randn(20, 8, requires_grad=True)
    labels = torch.tensor([3, 20, -100, -1, 2**40])

    def head(labels: torch.Tensor) -> torch.Tensor:
        return ops.masked_cross_entropy(
            hidden, torch.arange(5), labels, weight, reduction="none", mode=mode, implementation=by
        )

    loss = torch.compile(head, fullgraph=True, backend="aot_eager")(labels)
    assert loss.isnan().tolist() == [False, True, False, True, True]


def refused_in_export(by: str) -> str | None:
    return refusal(OPERATION, by, MaskedProjectionFacts(tiled=True))


@unless(refused_in_export)
@pytest.mark.parametrize("by", implementations(OPERATION))
def test_it_can_be_exported(by: str) -> None:
    class Head(torch.nn.Module):
        def forward(
            self, hidden: torch.Tensor, picked: torch.Tensor, labels: torch.Tensor
        ) -> torch.Tensor:
            weight = torch.ones(30, 8)
            return ops.masked_cross_entropy(
                hidden, picked, labels, weight, mode="tiled", implementation=by
            )

    num_rows = torch.export.Dim("num_rows", min=2, max=1000)
    hidden, picked = torch.randn(20, 8), torch.arange(4)
    exported = torch.export.export(
        Head(),
        (hidden, picked, picked),
        dynamic_shapes={"hidden": None, "picked": {0: num_rows}, "labels": {0: num_rows}},
    )
    more = torch.arange(9)
    assert torch.equal(exported.module()(hidden, more, more), Head()(hidden, more, more))


def test_autocast_casts_as_it_does_for_a_dense_layer() -> None:
    case = MaskedCase(num_tokens=20, num_rows=9, width=8, vocab_size=70)
    picked, labels = case.targets()
    leaves = [x.requires_grad_() for x in case.inputs().values()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ops.masked_cross_entropy(leaves[0], picked, labels, leaves[1], leaves[2])
        eager = F.cross_entropy(F.linear(leaves[0][picked], leaves[1], leaves[2]).float(), labels)
    truth = ours(case, "reference", "stored", *(x.double() for x in leaves))
    assert_within_budget(loss.detach(), eager.detach(), truth.detach(), terms=70 + 8)
    assert all(x.dtype == torch.float32 for x in torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_a_tied_weight_are_not_rounded_under_autocast(
    mode: ops.ProjectionMode,
) -> None:
    case = MaskedCase(num_tokens=20, num_rows=9, width=8, vocab_size=70)
    picked, labels = case.targets()
    hidden, *leaves = (x.requires_grad_() for x in case.inputs().values())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ops.masked_cross_entropy(hidden, picked, labels, *leaves, mode=mode)
    for found in torch.autograd.grad(loss, leaves):
        assert found.dtype == torch.float32
        assert not torch.equal(found, found.bfloat16().float())


HIDDEN, WEIGHT, THREE = torch.zeros(4, 8), torch.zeros(20, 8), torch.arange(3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((HIDDEN[0], THREE, THREE, WEIGHT), r"hidden must be \[T, D\]"),
        ((HIDDEN, THREE, THREE, WEIGHT[:0]), "V > 0"),
        ((HIDDEN, THREE.int(), THREE, WEIGHT), "rows must be int64"),
        ((HIDDEN, THREE, THREE[:, None], WEIGHT), "labels must be int64"),
        ((HIDDEN, THREE, THREE[:2], WEIGHT), "3 rows and 2 labels"),
        ((HIDDEN[:, :7], THREE, THREE, WEIGHT), "hidden has 7 features, the weight expects 8"),
        ((HIDDEN, THREE, THREE, WEIGHT, torch.zeros(19)), "bias is .19., the weight has 20 rows"),
        ((HIDDEN, THREE, THREE, WEIGHT.double()), "weight is torch.float64"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(given: tuple[torch.Tensor, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.masked_cross_entropy(*given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 1.5}, "label_smoothing must be from 0 to 1, got 1.5"),
        ({"label_smoothing": float("nan")}, "label_smoothing"),
        ({"z_loss": -1.0}, "z_loss must be at least 0"),
        ({"z_loss": float("inf")}, "z_loss"),
        ({"reduction": "average"}, "reduction must be"),
        ({"mode": "fast"}, "mode must be"),
        ({"weight_gradient_VE": torch.zeros(19, 8)}, r"weight_gradient is \[19, 8\]"),
        ({"weight_gradient_VE": torch.zeros(20, 8).half()}, "must be float32"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.masked_cross_entropy(HIDDEN, THREE, THREE, WEIGHT, **options)  # type: ignore[call-overload]


def test_rows_and_labels_out_of_range_are_named() -> None:
    for bad in (4, -1):
        with pytest.raises(BatchError, match=rf"rows\[2\] is {bad}, hidden has 4 rows") as raised:
            ops.masked_cross_entropy(HIDDEN, torch.tensor([0, 1, bad]), THREE, WEIGHT)
        assert raised.value.row == 2
    for bad in (20, -1, -101):
        with pytest.raises(TokenIdError, match=rf"labels\[1\] is {bad}; .* 0 to 19") as raised_id:
            ops.masked_cross_entropy(HIDDEN, THREE, torch.tensor([3, bad, -100]), WEIGHT)
        assert raised_id.value.row == 1
