"""torch.compile and torch.export take an encoder whole, for batches of every size."""

from __future__ import annotations

import copy
import io
from itertools import product
from typing import TYPE_CHECKING

import pytest
import torch
import torch._dynamo.testing

import encoder_engine as ee
from encoder_engine import ops
from encoder_engine.errors import SequenceLengthError, TokenIdError
from encoder_engine.families.facts.spec import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    EncoderSpec,
    FeedForwardSpec,
    NormSpec,
)
from encoder_engine.models.encoder import EncoderOutput
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import PackedBatch, Sequences, pack
from tests.computing import computed_by
from tests.models.cases import CASES
from tests.selection import covering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VOCAB_SIZE, NUM_POSITIONS = 50, 64
# Batches of different numbers of tokens and of sequences, with an empty sequence.
BATCHES = [[3, 5], [3, 5, 6], [1, 2, 0, 4], [7] * 9, [2, 1], [30, 9]]


@pytest.fixture(autouse=True)
def forget_graphs() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(params=["aten", pytest.param("triton", marks=pytest.mark.exhaustive)])
def trained_by(request: pytest.FixtureRequest) -> Iterator[str]:
    with computed_by(request.param, requires_grad=True):
        yield request.param


@pytest.fixture(params=["native", "aten", "triton"])
def inferred_by(request: pytest.FixtureRequest) -> Iterator[str]:
    with computed_by(request.param, requires_grad=False), torch.no_grad():
        yield request.param


def batches(implementation: str) -> list[list[int]]:
    """Leave the interpreter the first three: one for each graph, and one for the second again."""
    return BATCHES[:3] if implementation == "triton" else BATCHES


def make_encoder(*, dropout: float = 0.0, num_blocks: int = 2) -> ee.Encoder:
    torch.manual_seed(0)
    block = BlockSpec(
        attention=AttentionSpec(num_heads=2, head_dim=16, dropout=dropout, output_dropout=dropout),
        feed_forward=FeedForwardSpec(width=64, activation="gelu", output_dropout=dropout),
        norm=NormSpec(epsilon=1e-5),
    )
    embedding = EmbeddingSpec(
        vocab_size=VOCAB_SIZE,
        width=32,
        num_positions=NUM_POSITIONS,
        first_position=2,
        positions_skip_padding=True,
        num_segments=2,
        padding_id=1,
        norm=NormSpec(epsilon=1e-5),
        dropout=dropout,
    )
    blocks = (block,) * num_blocks
    return ee.Encoder(
        EncoderSpec(model_type="test", embedding=embedding, blocks=blocks, width=32, pooler=True)
    )


def drawn_ids(lengths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(sum(lengths))
    return [torch.randint(0, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]


def make_batch(lengths: list[int], *, vocab_size: int | None = VOCAB_SIZE) -> PackedBatch:
    rows = drawn_ids(lengths)
    kinds = [[place % 2 for place in range(n)] for n in lengths]
    return pack(rows, token_type_ids=kinds, vocab_size=vocab_size)


def outputs(output: EncoderOutput) -> dict[str, torch.Tensor]:
    assert output.pooler_output is not None
    return {"last_hidden_state": output.last_hidden_state, "pooler_output": output.pooler_output}


def trained(encoder: ee.Encoder, output: EncoderOutput) -> dict[str, torch.Tensor]:
    """Return the outputs and the gradient of every parameter."""
    found = outputs(output)
    total = sum((x.square().sum() for x in found.values()), torch.zeros(()))
    named = dict(encoder.named_parameters())
    grads = torch.autograd.grad(total, list(named.values()))
    return {name: x.detach() for name, x in found.items()} | dict(zip(named, grads, strict=True))


def test_training_is_one_graph_for_all_sizes_and_within_budget(trained_by: str) -> None:
    encoder = make_encoder()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(encoder, backend=counter, fullgraph=True)
    truth = make_encoder().double()
    for lengths in batches(trained_by):
        batch = make_batch(lengths)
        output = compiled(batch)
        assert output.sequences is batch.sequences
        found = trained(encoder, output)
        eager = trained(encoder, encoder(batch))
        with computed_by("aten", requires_grad=True):
            true = trained(truth, truth(batch))
        size = max(float(x.abs().max()) for x in true.values())
        for name, expected in true.items():
            # The longest sum: over the batch's rows, and a row's features, layer after layer.
            terms = 4 * (64 + batch.num_tokens)
            assert_within_budget(found[name], eager[name], expected, name, terms=terms, size=size)
    assert counter.frame_count == 2, "one graph for the first batch, one for all others"


def test_inference_is_one_graph_for_all_sizes_and_equal(inferred_by: str) -> None:
    encoder = make_encoder().eval()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(encoder, backend=counter, fullgraph=True)
    for lengths in batches(inferred_by):
        batch = make_batch(lengths)
        found = compiled(batch, output_hidden_states=True)
        expected = encoder(batch, output_hidden_states=True)
        assert len(found.hidden_states) == 3
        for name, value in outputs(found).items():
            torch.testing.assert_close(value, outputs(expected)[name])
    assert counter.frame_count == 2


def test_a_quantized_encoder_is_one_graph_with_the_same_bits() -> None:
    encoder = make_encoder().eval().quantize()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(encoder, backend=counter, fullgraph=True)
    for lengths in BATCHES:
        batch = make_batch(lengths)
        with torch.inference_mode():
            found, expected = outputs(compiled(batch)), outputs(encoder(batch))
        assert torch.equal(found["last_hidden_state"], expected["last_hidden_state"])
        # Quantizing leaves the pooler PyTorch's own product, which a graph writes differently.
        torch.testing.assert_close(found["pooler_output"], expected["pooler_output"])
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    "model_type",
    [
        "modernbert",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("albert", "t5")),
    ],
)
def test_what_families_add_is_one_graph_too(model_type: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.model_type == model_type)
    case.save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(encoder, backend=counter, fullgraph=True)
    wide = copy.deepcopy(encoder).double()
    with torch.no_grad():
        for lengths in BATCHES[:3]:
            batch = pack(drawn_ids(lengths))
            values = (model(batch).last_hidden_state for model in (compiled, encoder, wide))
            assert_within_budget(*values, terms=3 * encoder.spec.width)
    assert counter.frame_count == 2


def test_dropout_is_drawn_anew_on_every_call_of_a_graph(trained_by: str) -> None:
    encoder = make_encoder(dropout=0.5, num_blocks=1).train()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    batch = make_batch([3, 5])
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(trained(encoder, compiled(batch)))
    for name, first in drawn[0].items():
        assert torch.equal(first, drawn[1][name]), name
    hidden = "last_hidden_state"
    assert not torch.equal(drawn[0][hidden], drawn[2][hidden])
    assert all(bool(x.isfinite().all()) for x in drawn[0].values())


@pytest.mark.parametrize(
    "vocab_size", [None, pytest.param(VOCAB_SIZE, marks=pytest.mark.exhaustive)]
)
def test_a_batch_the_model_cannot_take_is_refused_by_the_graph(vocab_size: int | None) -> None:
    encoder = make_encoder().eval()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    compiled(make_batch([3, 5], vocab_size=vocab_size))
    with pytest.raises(SequenceLengthError, match="row 1 has 63 tokens, the model takes 62"):
        compiled(make_batch([2, 63], vocab_size=vocab_size))
    if vocab_size is None:
        with pytest.raises(TokenIdError, match="50 at row 1, position 0"):
            compiled(pack([[1, 2], [50, 3]], token_type_ids=[[0, 1], [1, 0]]))
    with pytest.raises(TokenIdError, match="token type id 2 at row 0, position 1"):
        compiled(pack([[1, 2], [3]], token_type_ids=[[0, 2], [1]], vocab_size=vocab_size))


def test_what_a_graph_cannot_know_is_refused_with_the_reason() -> None:
    compiled = torch.compile(make_encoder().eval(), backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="reads the lengths on the host"):
        compiled(make_batch([3, 5]), output_attentions=True)


@pytest.mark.parametrize("inferred_by", ["native", "aten", "triton"], indirect=True)
def test_export_takes_any_number_of_tokens_and_sequences(inferred_by: str) -> None:
    encoder = make_encoder().eval()
    tokens, offsets = torch.export.Dim("tokens"), torch.export.Dim("offsets", min=3)
    column, layout = {0: tokens}, [{0: offsets}, {0: offsets}]
    exported = torch.export.export(
        encoder, (make_batch([3, 5, 6]),), dynamic_shapes={"batch": [column, column, None, layout]}
    )
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    module = torch.export.load(buffer).module()
    for lengths in batches(inferred_by):
        batch = make_batch(lengths)
        found = module(batch)
        assert isinstance(found, EncoderOutput)
        assert found.sequences.lengths.tolist() == lengths
        assert found.padded().shape == (len(lengths), max(lengths), 32)
        expected = outputs(encoder(batch))
        for name, value in outputs(found).items():
            torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize(
    ("mode", "inferred_by"),
    covering(
        product(ops.POOLING_MODES, ("native", "aten", "triton")),
        lambda mode, by: [mode, by],
    ),
    indirect=["inferred_by"],
)
def test_pooling_is_part_of_a_graph(mode: ops.PoolingMode, inferred_by: str) -> None:
    def pool(hidden_TD: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
        layout = batch.sequences.in_graph(hidden_TD.shape[0])
        return ops.pooling(hidden_TD, layout, mode=mode, normalize=True)

    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(pool, backend=counter, fullgraph=True)
    for lengths in BATCHES[:3]:
        batch = make_batch(lengths)
        hidden = torch.randn(batch.num_tokens, 8)
        found = compiled(hidden, batch)
        expected = ops.pooling(hidden, batch.sequences, mode=mode, normalize=True)
        torch.testing.assert_close(found, expected)
    assert counter.frame_count == 2


def test_a_layout_remembers_nothing_of_another_and_keeps_its_device() -> None:
    layout = Sequences.from_lengths([2, 0, 3])
    layout.tiles(2)
    copy = layout.in_graph(5)
    assert copy.num_tokens == 5
    assert torch.equal(copy.tiles(2), layout.tiles(2))
    assert copy.tiles(2) is not layout.tiles(2)
    assert copy.to("cpu") is copy
