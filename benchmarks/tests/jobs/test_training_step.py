"""The gate of training steps refuses what is a little wrong; packed peers see no other sequence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.cases import training_gpu
from benchmarks.cases.encoder import TINY
from benchmarks.cases.pretraining import NO_DROPOUT, SEED, Size, cut, draw_batch, make_model
from benchmarks.cases.training_variants import attending
from benchmarks.jobs import transformers_step
from benchmarks.jobs.training_step import make_gate, make_step, make_work
from encoder_engine import ops
from encoder_engine.objectives.objective import prepare
from encoder_engine.ops.registry import Operation
from encoder_engine.packing import Sequences

CPU: dict[str, Any] = {"device": "cpu", "precision": "bfloat16"}
SIZE = Size(config=training_gpu.SMOKE_MODERNBERT, lengths=(60, 33, 42, 35, 80, 20) * 4)


def varlen(
    query: Tensor, key: Tensor, value: Tensor, ends: Tensor, *_: Any, **given: Any
) -> Tensor:
    """Attend as torch's ``varlen_attn`` does, which needs a GPU and half precision."""
    assert query.dtype == key.dtype == value.dtype == torch.bfloat16
    side, outputs = given["window_size"][0], []
    for parts in zip(
        *(torch.tensor_split(x, ends.tolist()[1:-1]) for x in (query, key, value)), strict=True
    ):
        q, k, v = (x.transpose(0, 1)[None] for x in parts)
        places = torch.arange(q.shape[2])
        seen = (places[:, None] - places).abs() <= (side if side >= 0 else len(places))
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=given["scale"])
        outputs.append(found[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.slow
def test_the_gate_passes_packed_peers_and_refuses_negated_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clean, model = draw_batch(SIZE), make_model(SIZE.config)
    training_gpu.sharpen(model)
    inputs, *parts = (
        prepare(one, model.objectives, seed=SEED) for one in (clean, *cut(clean, 135))
    )
    assert len(parts) == 8
    gate = make_gate(model, parts, **CPU)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen)
    way = training_gpu.MODERNBERT_WAYS["transformers, packed"]
    verdict = gate(make_work(transformers_step.make_their_step(model, inputs, way, **CPU)).answer())
    assert verdict.passed, verdict.reason
    find = Operation.find

    def find_wrong(self: Operation, *facts: Any, **others: Any) -> Any:
        function = find(self, *facts, **others)
        if self.name != "attention":
            return function
        return lambda *given: function(-given[0], *given[1:])

    monkeypatch.setattr(Operation, "find", find_wrong)
    step = make_step(model, **CPU)
    assert not gate(make_work(lambda: step(inputs)).answer()).passed


def test_a_variant_computes_attention_without_terms_and_leaves_what_has_some() -> None:
    heads, layout = torch.linspace(-1.0, 1.0, 40).view(5, 2, 4), Sequences.from_lengths([3, 2])

    def attend(**terms: Any) -> Tensor:
        return ops.attention(heads, heads, heads, layout, **terms)

    plain, near = attend(), attend(window=1)
    with attending(lambda usual, *given: -usual(*given)):
        assert torch.equal(attend(), -plain)
        assert torch.equal(attend(window=1), near)
    assert torch.equal(attend(), plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pretraining_gpu/base-mixed-32k", "finetuning_gpu/base-32x128"])
def test_what_torch_compiles_is_one_graph_for_all_blocks_and_one_for_the_head(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph

    compile_with = partial(torch.compile, backend=backend, fullgraph=True, dynamic=False)

    def compile_whole(function: Any, **_: Any) -> Any:
        return compile_with(function)

    def compile_in_place(self: Any, **_: Any) -> None:
        self._compiled_call_impl = compile_with(self._call_impl)

    monkeypatch.setattr(torch, "compile", compile_whole)
    monkeypatch.setattr(nn.Module, "compile", compile_in_place)
    training = training_gpu.TRAININGS[name]
    config = TINY | NO_DROPOUT
    clean = draw_batch(replace(SIZE, config=config))
    model: Any = make_model(config)
    inputs = prepare(clean, model.objectives, seed=SEED)
    if training.classifies:
        model, inputs = training_gpu._make_classifier(config), training_gpu._classified(clean)
    for way in (way for way in training.ways.values() if way.compiled):
        seen.clear()
        torch._dynamo.reset()
        step = transformers_step.make_their_step(model, inputs, way, **CPU)
        assert torch.isfinite(step())
        assert len(seen) == (1 if training.classifies else 2)
