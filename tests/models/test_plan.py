"""Blocks planned as one call compute, bit for bit, what they compute one after the other."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch

import encoder_engine as ee
from encoder_engine import ops
from encoder_engine.models.layers import Block
from encoder_engine.models.plan import Planner
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.packing import pack
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from encoder_engine.packing import PackedBatch

if native_instruction_set() in (None, "portable"):
    pytest.skip("native operations are not chosen unasked here", allow_module_level=True)

LENGTHS = (9, 1, 30, 0, 17)
# Families whose blocks native operations compute whole.
NOT_PLANNED = {"deberta", "deberta-v2"}


def draw_batch(lengths: tuple[int, ...] = LENGTHS) -> PackedBatch:
    generator = torch.Generator().manual_seed(5)
    return pack([torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths])


def prepared(case: Case, folder: Path, precision: str) -> ee.Encoder:
    """Load an encoder whose dense layers are laid out for native products."""
    case.save(folder)
    dtype = "float32" if precision.endswith("float32") else "bfloat16"
    encoder = ee.Encoder.from_pretrained(folder, device="cpu", dtype=dtype)
    return encoder.quantize() if precision.startswith("int8") else encoder.pack()


def run(encoder: ee.Encoder, batch: PackedBatch) -> Tensor:
    with torch.inference_mode():
        output: Tensor = encoder(batch).last_hidden_state
    return output


def called(encoder: ee.Encoder, batch: PackedBatch) -> Tensor:
    """Call block after block."""
    with patch.object(Planner, "run", return_value=None):
        return run(encoder, batch)


def planned(encoder: ee.Encoder, batch: PackedBatch) -> tuple[Tensor, bool]:
    """Return the output, and whether a plan computed it."""
    found: list[Any] = []
    compute = Planner.run

    def watched(self: Planner, *given: Any) -> Any:
        found.append(compute(self, *given))
        return found[-1]

    with patch.object(Planner, "run", watched):
        output = run(encoder, batch)
    return output, bool(found) and found[0] is not None


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int8 in float32"])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_family_gives_the_same_bits(case: Case, precision: str, tmp_path: Path) -> None:
    encoder = prepared(case, tmp_path, precision)
    for batch in (draw_batch(), draw_batch((3,)), draw_batch()):
        found, by_plan = planned(encoder, batch)
        assert torch.equal(found, called(encoder, batch))
        assert by_plan is (case.model_type not in NOT_PLANNED)


@pytest.fixture(params=["bfloat16", "int8"])
def encoder(request: pytest.FixtureRequest, tmp_path: Path) -> ee.Encoder:
    """Load a small BERT."""
    case = next(case for case in CASES if case.model_type == "bert")
    return prepared(case, tmp_path, request.param)


def test_an_empty_batch_comes_back_empty(encoder: ee.Encoder) -> None:
    found, by_plan = planned(encoder, draw_batch((0,)))
    assert by_plan
    assert found.shape == (0, encoder.spec.width)


def test_an_encoder_without_blocks_gives_its_embeddings(encoder: ee.Encoder) -> None:
    bare = ee.Encoder(replace(encoder.spec, blocks=())).eval()
    batch = draw_batch()
    with torch.inference_mode():
        assert torch.equal(run(bare, batch), bare.embedding(batch))


def scale_a_norm(encoder: ee.Encoder) -> None:
    block: Any = encoder.blocks[0]
    block.attention_norm.weight.data = 2 * block.attention_norm.weight.data


def scale_a_norm_in_place(encoder: ee.Encoder) -> None:
    block: Any = encoder.blocks[0]
    with torch.no_grad():
        block.feed_forward_norm.bias += 1


def swap_two_layers(encoder: ee.Encoder) -> None:
    blocks: Any = encoder.blocks
    first, second = blocks[0].attention, blocks[1].attention
    first.output, second.output = second.output, first.output


def repeat_a_block(encoder: ee.Encoder) -> None:
    encoder.blocks[1] = encoder.blocks[0]


def add_a_block_beyond_the_spec(encoder: ee.Encoder) -> None:
    encoder.blocks.insert(0, encoder.blocks[1])


CHANGES = [
    scale_a_norm,
    scale_a_norm_in_place,
    swap_two_layers,
    repeat_a_block,
    add_a_block_beyond_the_spec,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_after_planning_is_noticed(
    encoder: ee.Encoder, change: Callable[[ee.Encoder], None]
) -> None:
    batch = draw_batch()
    before, _ = planned(encoder, batch)
    change(encoder)
    found, by_plan = planned(encoder, batch)
    assert by_plan
    assert torch.equal(found, called(encoder, batch))
    assert not torch.equal(found, before)


@pytest.mark.parametrize("model_type", ["mpnet", "t5"])
def test_a_plan_adds_the_relative_bias_of_each_call(model_type: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.model_type == model_type)
    encoder = prepared(case, tmp_path, "float32")
    batch = draw_batch()
    before, by_plan = planned(encoder, batch)
    assert by_plan
    assert encoder.relative_bias is not None
    with torch.no_grad():
        encoder.relative_bias.table.weight.mul_(-3.0)
    found, by_plan = planned(encoder, batch)
    assert by_plan
    assert torch.equal(found, called(encoder, batch))
    assert not torch.equal(found, before)


def test_hooks_named_implementations_and_autocast_call_the_blocks(encoder: ee.Encoder) -> None:
    batch = draw_batch()
    expected, by_plan = planned(encoder, batch)
    assert by_plan
    seen: list[int] = []
    layer: Any = encoder.blocks[1]
    handle = layer.attention.output.register_forward_hook(lambda *_: seen.append(1))
    found, by_plan = planned(encoder, batch)
    assert (by_plan, seen) == (False, [1])
    assert torch.equal(found, expected)
    handle.remove()
    with ops.use("aten", operation="attention"):
        assert not planned(encoder, batch)[1]
    with torch.autocast("cpu", torch.bfloat16):
        assert not planned(encoder, batch)[1]
    with torch.inference_mode():
        states = encoder(batch, output_hidden_states=True).hidden_states
    assert states is not None
    assert torch.equal(states[-1], expected)
    assert planned(encoder, batch)[1]


def test_a_layer_that_somebody_computes_otherwise_is_called(encoder: ee.Encoder) -> None:
    batch = draw_batch()
    expected, by_plan = planned(encoder, batch)
    assert by_plan
    layer: Any = encoder.blocks[0]
    plain = layer.attention.forward
    seen: list[int] = []

    def watched(*given: Any) -> Any:
        seen.append(1)
        return plain(*given)

    layer.attention.forward = watched
    found, by_plan = planned(encoder, batch)
    assert (by_plan, seen) == (False, [1])
    assert torch.equal(found, expected)


def test_a_block_of_another_kind_is_called(encoder: ee.Encoder) -> None:
    class Doubling(Block):
        def forward(self, *given: Any) -> Any:
            hidden, probabilities = super().forward(*given)
            return 2 * hidden, probabilities

    batch = draw_batch()
    before, _ = planned(encoder, batch)
    encoder.blocks[1].__class__ = Doubling
    encoder.blocks[1] = copy.copy(encoder.blocks[1])
    found, by_plan = planned(encoder, batch)
    assert not by_plan
    assert not torch.equal(found, before)


def test_rows_of_another_dtype_are_no_plans(encoder: ee.Encoder) -> None:
    batch = draw_batch()
    assert planned(encoder, batch)[1]
    hidden_TD = torch.zeros(batch.num_tokens, encoder.spec.width)
    blocks: Any = list(encoder.blocks)
    with torch.inference_mode():
        assert encoder._planner.run(blocks, hidden_TD, batch.sequences, None) is None


def test_a_parameter_that_learns_gets_its_gradient(encoder: ee.Encoder) -> None:
    batch = draw_batch()
    assert planned(encoder, batch)[1]
    last: Any = encoder.blocks[-1]
    last.feed_forward_norm.bias.requires_grad_()
    encoder(batch).last_hidden_state.float().sum().backward()
    assert last.feed_forward_norm.bias.grad is not None
    assert planned(encoder, batch)[1]


def test_copies_plan_for_themselves(encoder: ee.Encoder) -> None:
    batch = draw_batch()
    expected, _ = planned(encoder, batch)
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        scale_a_norm(encoder)
        found, by_plan = planned(other, batch)
        assert by_plan
        assert torch.equal(found, expected)


def test_threads_share_a_plan(encoder: ee.Encoder) -> None:
    batches = [draw_batch((n, 2 * n)) for n in (1, 5, 12, 20)]
    expected = [called(encoder, batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            found = pool.map(lambda batch: run(encoder, batch), batches)
            assert all(map(torch.equal, found, expected))
