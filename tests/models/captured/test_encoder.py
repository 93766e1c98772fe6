"""A captured encoder computes in the layout of a bucket what the encoder computes of the batch."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.errors import (
    ImplementationError,
    InputError,
    SequenceLengthError,
    TokenIdError,
    UnsupportedFeatureError,
)
from encoder_engine.models import CapturedEncoder, Encoder
from encoder_engine.models.captured.graph import Computation, Graph
from encoder_engine.models.captured.module_state import ModuleState
from encoder_engine.models.layers import Block
from encoder_engine.models.linear import Linear
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import PackedBatch, Sequences, pack
from encoder_engine.packing.bucket import Bucket
from tests.models.captured.families import FAMILIES, computing, draw_ids, make_encoder
from tests.models.captured.recorded import record_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.packing.pooling_modes import PoolingMode

# Mixed lengths with empty sequences, one token, none, and batches that fill their bucket.
BATCHES = [[5, 0, 1, 30, 9, 0], [1], [], [0], [16] * 4, [64]]
# In the usual run, one of each kind of attention: plain, with a bias, with DeBERTa's terms, and
# with a window and rotary positions.
INTERPRETED = ("bert", "mpnet", "deberta-v2", "modernbert")

IMPLEMENTATIONS = ["native", "aten", pytest.param("triton", marks=pytest.mark.slow)]


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.inference_mode():
        yield request.param


@pytest.fixture
def inferring() -> Iterator[None]:
    """Compute no gradients."""
    with torch.inference_mode():
        yield


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fill memory that nothing has written with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def make_batch(lengths: list[int], seed: int = 0, *, types: bool = False) -> PackedBatch:
    rows = draw_ids(lengths, seed)
    kinds = [[place % 2 for place in range(n)] for n in lengths]
    return pack(rows, token_type_ids=kinds if types else None)


def assert_same(
    captured: CapturedEncoder, batch: PackedBatch, implementation: str = "native"
) -> None:
    """Compare the output and the layout with the plain call's, bit for bit.

    PyTorch's own operations on a CPU depend on where a row lies: theirs are within the budget.
    """
    found, expected = captured(batch), captured.encoder(batch)
    assert torch.equal(found.sequences.cu_seqlens, batch.cu_seqlens)
    assert found.sequences.lengths.tolist() == batch.sequences.lengths.tolist()
    pairs = [(found.last_hidden_state, expected.last_hidden_state)]
    assert (found.pooler_output is None) == (expected.pooler_output is None)
    if found.pooler_output is not None and expected.pooler_output is not None:
        pairs.append((found.pooler_output, expected.pooler_output))
    if implementation != "aten":
        assert all(torch.equal(ours, plain) for ours, plain in pairs)
        return
    truth = exact(captured.encoder, batch)
    for (ours, plain), true in zip(pairs, truth, strict=False):
        assert_within_budget(ours, plain, true, terms=3 * captured.encoder.spec.width)


def exact(encoder: Encoder, batch: PackedBatch) -> list[Tensor]:
    """Return the outputs in float64."""
    with ops.use("reference"):
        output = copy.deepcopy(encoder).double()(batch)
    outputs = (output.last_hidden_state, output.pooler_output)
    return [x for x in outputs if x is not None]


@pytest.mark.parametrize(
    ("model_type", "implementation"),
    [
        *((name, by) for name in FAMILIES for by in ("native", "aten")),
        *(
            pytest.param(
                *(name, "triton"),
                marks=[pytest.mark.exhaustive] * (name not in INTERPRETED),
            )
            for name in FAMILIES
        ),
    ],
)
@pytest.mark.usefixtures("poisoned", "inferring")
def test_every_bit_is_that_of_the_plain_call(model_type: str, implementation: str) -> None:
    encoder = make_encoder(model_type)
    # Rows beyond a batch hold token 0, no batch does: they are NaN throughout.
    encoder.embedding.tokens.weight.data[0] = torch.nan
    captured = CapturedEncoder(encoder)
    with computing(model_type, implementation):
        for lengths in BATCHES[:2] if implementation == "triton" else BATCHES:
            batch = make_batch(lengths, types=model_type == "bert")
            assert_same(captured, batch, implementation)
            assert bool(captured(batch).last_hidden_state.isfinite().all())


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.usefixtures("poisoned")
def test_pooling_is_that_of_the_plain_call(
    mode: PoolingMode, normalize: bool, implementation: str
) -> None:
    encoder = make_encoder("bert")
    encoder.embedding.tokens.weight.data[0] = torch.nan
    captured = CapturedEncoder(encoder)
    for lengths in BATCHES:
        batch = make_batch(lengths)
        with ops.use(implementation, operation="pooling"):
            found = captured.pooled(batch, mode, normalize=normalize)
            hidden_TD = captured(batch).last_hidden_state
            expected = ops.pooling(hidden_TD, batch.sequences, mode=mode, normalize=normalize)
        assert torch.equal(found, expected)
        assert bool(found.isfinite().all())


@pytest.mark.parametrize("model_type", ["roberta", "modernbert"])
@pytest.mark.parametrize(
    "implementation", ["native", "aten", pytest.param("triton", marks=pytest.mark.exhaustive)]
)
def test_one_bucket_serves_one_batch_after_another(model_type: str, implementation: str) -> None:
    captured = CapturedEncoder(make_encoder(model_type))
    for seed, lengths in enumerate([[60], [3, 0, 2], [20, 20], [1, 1, 1, 1], [7, 9, 11]]):
        padded = [*lengths, *[0] * (4 - len(lengths))]
        with computing(model_type, implementation), torch.inference_mode():
            first = captured(make_batch(padded, seed))
            kept = first.last_hidden_state.clone()
            assert_same(captured, make_batch(padded[::-1], seed + 100), implementation)
        assert torch.equal(first.last_hidden_state, kept), "a later call wrote over a result"
    assert captured.num_graphs == 1


@pytest.mark.usefixtures("poisoned")
def test_rows_that_attention_leaves_unwritten_reach_no_product() -> None:
    # In bfloat16 oneDNN multiplies the start of the next row by zeros: 92 features fill no block.
    captured = CapturedEncoder(make_encoder("bert").to(torch.bfloat16))
    with torch.inference_mode():
        assert_same(captured, make_batch([5, 3]))


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_given_positions_are_used(model_type: str) -> None:
    captured = CapturedEncoder(make_encoder(model_type))
    plain = make_batch([5, 3])
    positions = torch.tensor([7, 6, 5, 4, 3, 90, 0, 1])
    batch = PackedBatch(
        input_ids=plain.input_ids, sequences=plain.sequences, position_ids=positions
    )
    with torch.no_grad():
        assert_same(captured, batch)
        assert_same(captured, plain)
    assert captured.num_graphs == 2


@pytest.mark.slow
@pytest.mark.parametrize("model_type", FAMILIES)
def test_nothing_that_a_graph_repeats_reads_the_device(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The device "meta" cannot be read, which would end a capture on a CUDA device. Autocast does
    # not know it.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)
    encoder = make_encoder(model_type)
    bucket = Bucket.of(Sequences.from_lengths(BATCHES[0]))
    with computing(model_type, "triton"), torch.no_grad():
        network = encoder.to("meta")
        hidden = Graph(Computation(bucket, False, True), network).compute().hidden_TD
        graph = Graph(Computation(bucket, model_type == "bert", False, ("max", True)), network)
        pooled = graph.compute().pooled_BD
    assert isinstance(hidden, Tensor)
    assert isinstance(pooled, Tensor)
    assert hidden.shape == (bucket.num_tokens, encoder.spec.width)
    assert pooled.shape == (bucket.num_sequences + 1, encoder.spec.width)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model_type",
    [
        "bert",
        "modernbert",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in FAMILIES
            if name not in ("bert", "modernbert")
        ),
    ],
)
def test_a_recorded_computation_is_right_for_other_batches(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = record_graphs(monkeypatch)
    captured = CapturedEncoder(make_encoder(model_type))
    with computing(model_type, "triton"), torch.no_grad():
        assert_same(captured, make_batch([40, 2]))
        assert graphs == [], "the first batch of a bucket is captured"
        assert_same(captured, make_batch([30, 9], seed=4))
        assert_same(captured, make_batch([7, 9], seed=1))
        assert [graph.num_replays for graph in graphs] == [2]
        if model_type == "bert":
            for seed, lengths in enumerate([[3, 60], [8, 8], [9, 1]], start=2):
                batch = make_batch(lengths, seed)
                pooled = captured.pooled(batch, "max")
                assert pooled.shape == (2, 28)
                hidden_TD = captured.encoder(batch).last_hidden_state
                assert torch.equal(pooled, ops.pooling(hidden_TD, batch.sequences, mode="max"))
            assert [graph.num_replays for graph in graphs] == [2, 2]


def test_weights_changed_in_place_or_replaced_are_used() -> None:
    encoder = make_encoder("bert")
    captured, batch = CapturedEncoder(encoder), make_batch([5, 3])
    with torch.no_grad():
        before = captured(batch).last_hidden_state
        block = encoder.blocks[0]
        assert isinstance(block, Block)
        up = block.feed_forward.up
        assert isinstance(up, Linear)
        up.weight.add_(1.0)
        assert_same(captured, batch)
        assert captured.num_graphs == 1
        assert not torch.equal(captured(batch).last_hidden_state, before)
        captured.pooled(batch)
        assert captured.num_graphs == 2
        up.weight.data = up.weight.data + 1.0
        assert_same(captured, batch)
        assert captured.num_graphs == 1, "graphs of the former weights are kept"
        captured.pooled(batch)
        up.bias = nn.Parameter(up.bias + 1.0)
        assert_same(captured, batch)
        assert captured.num_graphs == 1
        captured.pooled(batch)
        encoder.to(torch.bfloat16)
        assert_same(captured, batch)
        assert captured.num_graphs == 1
        captured.pooled(batch)
        encoder.blocks[1] = make_encoder("roberta").to(torch.bfloat16).blocks[1]
        assert_same(captured, batch)
        assert captured.num_graphs == 1
        encoder.blocks[1] = nn.Identity()
        with pytest.raises(UnsupportedFeatureError, match="can be captured"):
            captured(batch)


def test_what_a_graph_would_compute_otherwise_is_refused() -> None:
    encoder = make_encoder("bert")
    captured, batch = CapturedEncoder(encoder), make_batch([5, 3])
    with pytest.raises(UnsupportedFeatureError, match="has no gradients"):
        captured(batch)
    with torch.no_grad():
        encoder.blocks[1].train()
        with pytest.raises(UnsupportedFeatureError, match="without dropout"):
            captured(batch)
        encoder.eval()
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(UnsupportedFeatureError, match="leave autocast"),
        ):
            captured.pooled(batch)
        hook = encoder.blocks[0].register_forward_hook(lambda *_: None)
        with pytest.raises(UnsupportedFeatureError, match="hooks"):
            captured(batch)
        with pytest.raises(UnsupportedFeatureError, match="hooks"):
            CapturedEncoder(encoder)
        hook.remove()
        assert_same(captured, batch)


def test_a_batch_that_the_model_cannot_take_is_refused_before_it_is_copied() -> None:
    captured = CapturedEncoder(make_encoder("bert"))
    with torch.no_grad():
        with pytest.raises(TokenIdError, match="token id 120 at row 1, position 0"):
            captured(pack([[1], [120]]))
        with pytest.raises(TokenIdError, match="token type id 2"):
            captured(pack([[1]], token_type_ids=[[2]]))
        with pytest.raises(SequenceLengthError, match="row 0 has 97 tokens"):
            captured.pooled(make_batch([97]))
        with pytest.raises(TypeError, match="an encoder takes a PackedBatch"):
            captured([1, 2])  # type: ignore[arg-type]
    assert captured.num_graphs == 0


def test_larger_batches_are_the_encoders_own_and_one_bucket_too_many_drops_all() -> None:
    encoder: Encoder = make_encoder("bert")
    captured = CapturedEncoder(encoder, max_tokens=70, max_graphs=2)
    with torch.no_grad():
        larger = make_batch([70, 1])
        assert_same(captured, larger)
        expected = ops.pooling(encoder(larger).last_hidden_state, larger.sequences)
        assert torch.equal(captured.pooled(larger), expected)
        assert captured.num_graphs == 0
        for lengths, expected_graphs in (([3], 1), ([3, 4], 2), ([3], 2), ([3, 4, 5], 1), ([3], 2)):
            assert_same(captured, make_batch(lengths))
            assert captured.num_graphs == expected_graphs
    with pytest.raises(InputError, match="max_graphs must be at least 1, got 0"):
        CapturedEncoder(encoder, max_graphs=0)


@pytest.mark.slow
def test_a_bucket_more_drops_those_met_once_or_else_all(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = record_graphs(monkeypatch)
    captured = CapturedEncoder(make_encoder("bert"), max_graphs=2)
    # Lengths of a batch, then the graphs that were captured and the buckets that are kept.
    calls = [([3], 0, 1), ([3, 4], 0, 2), ([3, 4, 5], 0, 1), ([3, 4, 5], 1, 1), ([3], 1, 2)]
    calls += [([3, 4], 1, 2), ([3, 4], 2, 2), ([3], 2, 1), ([3], 3, 1), ([3, 4, 5], 3, 2)]
    with computing("bert", "triton"), torch.no_grad():
        for lengths, expected_graphs, expected_buckets in calls:
            assert_same(captured, make_batch(lengths))
            assert (len(graphs), captured.num_graphs) == (expected_graphs, expected_buckets)
    assert [graph.num_replays for graph in graphs] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("not permitted when stream is capturing"), "cannot capture .*not permitted"),
        (ImplementationError("needs the lengths on the host"), "^needs the lengths on the host$"),
        (torch.OutOfMemoryError("no memory"), "^no memory$"),
    ],
)
def test_a_capture_that_fails_is_an_error_of_the_engine_or_of_memory(
    error: RuntimeError, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_graphs(monkeypatch)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "graph", fail)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda _stream: None)
    captured = CapturedEncoder(make_encoder("bert"))
    with computing("bert", "triton"), torch.no_grad():
        assert_same(captured, make_batch([3]))
        kinds = (ImplementationError, torch.OutOfMemoryError)
        with pytest.raises(kinds, match=expected) as caught:
            captured(make_batch([3]))
        assert type(caught.value) is (type(error) if type(error) in kinds else kinds[0])
        assert captured.num_graphs == 0


def test_calls_of_several_threads_are_right() -> None:
    captured = CapturedEncoder(make_encoder("bert").requires_grad_(False))
    batches = [make_batch(lengths, seed) for seed in range(8) for lengths in ([5, 3], [60, 30])]
    with ThreadPoolExecutor(4) as pool:
        outputs = pool.map(captured, batches)
        for batch, output in zip(batches, outputs, strict=True):
            plain = captured.encoder(batch).last_hidden_state
            assert torch.equal(output.last_hidden_state, plain)
    assert captured.num_graphs == 2


def test_another_view_of_the_same_memory_is_noticed() -> None:
    encoder = make_encoder("bert")
    state, weight = ModuleState(encoder), next(encoder.parameters())
    original = weight.data
    for changed in (original.view(torch.int32).view(torch.float32), original.clone()):
        weight.data = changed
        assert state.has_changed() == (changed.data_ptr() != original.data_ptr())
    for changed in (original.view(torch.int32), original[:2], original[:, :1].T):
        assert changed.data_ptr() == original.data_ptr()
        with torch.no_grad():
            weight.requires_grad_(False).data = changed
        assert state.has_changed()
    weight.data = original
    assert not state.has_changed()
