"""CUDA graphs on a GPU, beside the plain calls of the same encoder."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from encoder_engine import ops
from encoder_engine.engine.module import EncoderModule
from encoder_engine.engine.outputs import TokenStates
from encoder_engine.models import CapturedEncoder, Encoder
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import PackedBatch, pack
from encoder_engine.packing.token_rows import TokenRows
from tests.models.captured.families import FAMILIES, draw_ids, make_encoder
from tests.models.cases import Case, case_id, one_per_family

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing.pooling_modes import PoolingMode

pytestmark = pytest.mark.gpu
NUM_BATCHES = 20


def draw_batch(seed: int) -> PackedBatch:
    """Draw a batch on the host of the bucket of 256 tokens, 8 sequences and 64 tokens in each."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(33, 40, (5,), generator=generator).tolist()
    return pack(draw_ids([*lengths, seed % 7, 1, 0], seed))


def assert_near(captured: CapturedEncoder, batch: PackedBatch, exact: Encoder) -> None:
    """Compare with the plain call by the numeric budget: cuBLAS chooses kernels by rows."""
    output = captured(batch)
    plain = captured.encoder(batch).last_hidden_state
    with ops.use("reference"):
        truth = exact(batch).last_hidden_state
    assert output.sequences.cu_seqlens.tolist() == batch.cu_seqlens.tolist()
    assert output.sequences.device == output.last_hidden_state.device
    terms = 3 * captured.encoder.spec.width
    assert_within_budget(output.last_hidden_state, plain, truth, terms=terms)


def num_captured(captured: CapturedEncoder) -> int:
    return sum(graph.is_captured for graph in captured._graphs.values())


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_graph_serves_all_batches_of_its_bucket(model_type: str, dtype: torch.dtype) -> None:
    encoder = make_encoder(model_type).to("cuda", dtype)
    exact = copy.deepcopy(encoder).double()
    captured = CapturedEncoder(encoder)
    for seed in range(NUM_BATCHES):
        assert_near(captured, draw_batch(seed), exact)
    assert num_captured(captured) == 1


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
@torch.no_grad()
def test_pooling_is_part_of_the_graph(mode: PoolingMode) -> None:
    captured = CapturedEncoder(make_encoder("bert").to("cuda"))
    for seed in range(NUM_BATCHES):
        batch = draw_batch(seed)
        output = captured(batch, output_pooled=False)
        expected = ops.pooling(output.last_hidden_state, output.sequences, mode=mode)
        assert torch.equal(captured.pooled(batch, mode), expected)
    assert num_captured(captured) == 2


@torch.no_grad()
def test_graphs_of_many_buckets_share_memory_and_streams_do_not_mix() -> None:
    encoder = make_encoder("bert").to("cuda")
    exact, captured = copy.deepcopy(encoder).double(), CapturedEncoder(encoder)
    lengths = [[3], [60, 60], [90] * 8, [1] * 30, [], [0] * 3]
    batches = [pack(draw_ids(given, seed)) for seed, given in enumerate(lengths * 2)]
    for batch in batches:
        assert_near(captured, batch, exact)
    expected = [captured(batch).last_hidden_state for batch in batches]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in batches]  # type: ignore[no-untyped-call]
    found = []
    for stream, batch in zip(streams, batches, strict=True):
        with torch.cuda.stream(stream):
            found.append(captured(batch).last_hidden_state)
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, expected))
    # No token and one text of three are of one bucket.
    assert num_captured(captured) == len(lengths) - 1


@torch.no_grad()
def test_graphs_are_captured_anew_after_one_bucket_too_many() -> None:
    encoder = make_encoder("bert").to("cuda")
    exact = copy.deepcopy(encoder).double()
    for max_graphs in (1, 2):
        captured = CapturedEncoder(encoder, max_graphs=max_graphs)
        calls = [[3], [3], [60, 60], [90] * 8, [60, 60], [1] * 30, [3], [60, 60], [60, 60], [3]]
        calls += [[90] * 8, [90] * 8]
        for seed, lengths in enumerate(calls):
            assert_near(captured, pack(draw_ids(lengths, seed)), exact)
            assert captured.num_graphs <= max_graphs
        assert num_captured(captured) == 1


@torch.no_grad()
def test_the_weights_are_those_of_the_moment() -> None:
    encoder = make_encoder("bert").to("cuda")
    captured, batch = CapturedEncoder(encoder), draw_batch(0)
    first = captured(batch).last_hidden_state
    assert torch.equal(captured(batch).last_hidden_state, first)
    scale = encoder.embedding.norm
    assert scale is not None
    scale.weight.mul_(2.0)
    assert_near(captured, batch, copy.deepcopy(encoder).double())
    scale.weight = nn.Parameter(scale.weight * 2.0)
    for _ in range(2):
        assert_near(captured, batch, copy.deepcopy(encoder).double())
    assert num_captured(captured) == 1


@pytest.mark.parametrize("case", one_per_family(), ids=case_id)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_engine_captures_every_family(case: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    import transformers

    if not hasattr(transformers, case.config_class):
        pytest.skip(f"this version of transformers has no {case.config_class}")
    case.save(tmp_path)
    engine = EncoderModule(Encoder.from_pretrained(tmp_path, "cuda", dtype))
    ids = draw_ids([5, 1, 30, 9])
    rows = TokenRows(
        ids=np.concatenate(ids).astype(np.int32),
        cu_seqlens=np.cumsum([0, *map(len, ids)], dtype=np.int32),
    )
    found = [engine.run(rows, TokenStates())[0] for _ in range(3)]
    captured = engine.short._captured
    assert captured is not None
    assert num_captured(captured) == 1
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    with torch.no_grad():
        assert_near(captured, pack(ids), copy.deepcopy(engine.encoder).double())
