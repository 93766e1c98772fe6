"""A prefix that all texts of a causal batch share is computed once, and changes no vector."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config
from encoder_engine.inference import CompiledEncoder
from encoder_engine.inference.batch import Batch
from encoder_engine.ops.testing import assert_within_budget
from tests.models.all_cases import MORE_CASES
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*pooler weights")
CAUSAL = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gpt2")
CAUSAL_CASES = [
    case
    for case in MORE_CASES
    if case.model_type in CAUSAL and "use_bidirectional_attention" not in case.sizes
]
MODES = ("lasttoken", "mean", "cls", "max", "weightedmean")
PREFIX = 11
LENGTHS = (15, 12, 40, 12, 23)


def draw(lengths: tuple[int, ...] = LENGTHS, *, prefix: int = PREFIX) -> tuple[Any, Any]:
    """Draw texts that begin with the same tokens and differ in the next."""
    chance = np.random.default_rng(4)
    shared = chance.integers(5, VOCAB_SIZE, prefix)
    rows = [
        np.concatenate([shared, [5 + number], chance.integers(5, VOCAB_SIZE, n - prefix - 1)])
        for number, n in enumerate(lengths)
    ]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return np.concatenate(rows).astype(np.int32), starts.astype(np.int32)


def plain(compiled: CompiledEncoder) -> CompiledEncoder:
    """Return an encoder of the same weights that computes every text whole."""
    other: CompiledEncoder = CompiledEncoder.__new__(CompiledEncoder)
    vars(other).update(vars(compiled), shares_prefixes=False, _programs={})
    return other


@pytest.mark.parametrize("precision", [("float32", None), ("bfloat16", None), ("float32", "int8")])
@pytest.mark.parametrize("case", CAUSAL_CASES, ids=case_id)
def test_vectors_are_those_of_whole_texts(
    case: Case, precision: tuple[str, str | None], tmp_path: Path
) -> None:
    case.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path, *precision)
    whole, (ids, starts) = plain(compiled), draw()
    shared = compiled._shared(compiled._batch(ids, starts, None))
    assert shared.prefix == PREFIX
    assert shared.num_tokens == sum(LENGTHS) - PREFIX * (len(LENGTHS) - 1)
    found = [compiled.hidden(ids, starts)]
    expected = [whole.hidden(ids, starts)]
    for mode in MODES:
        found.append(compiled.pooled(ids, starts, mode=mode, normalized=True))
        expected.append(whole.pooled(ids, starts, mode=mode, normalized=True))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_vectors_of_a_shared_prefix_are_within_budget(tmp_path: Path) -> None:
    case = next(case for case in CAUSAL_CASES if case.model_type == "qwen3")
    model = case.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    exact = ee.Encoder.from_pretrained(tmp_path, device="cpu", dtype="float64")
    ids, starts = draw()
    found = compiled.hidden(ids, starts)
    for number, (start, stop) in enumerate(itertools.pairwise(starts)):
        row = torch.from_numpy(ids[start:stop]).long()[None]
        with torch.no_grad():
            eager = model(row).last_hidden_state[0]
            truth = exact(ee.packing.unpad(row)).last_hidden_state
        ours = torch.from_numpy(found[start:stop])
        assert_within_budget(ours, eager, truth, str(number), terms=3 * ours.shape[1])


def test_only_causal_encoders_share(tmp_path: Path) -> None:
    CASES[0].save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batch = compiled._batch(*draw(), None)
    assert compiled._shared(batch) is batch


SIZES = {
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("lengths", "prefix", "expected"),
    [((9,), 5, 0), ((9, 9), 3, 0), ((9, 9), 4, 4), ((5, 9), 4, 4), ((30, 30, 30), 29, 29)],
    ids=str,
)
def test_prefixes_that_are_worth_it_are_found(
    lengths: tuple[int, ...], prefix: int, expected: int
) -> None:
    ids, starts = draw(lengths, prefix=prefix)
    batch = Batch.of(spec_from_config(SIZES), ids, starts, None)
    assert batch.with_shared_prefix().prefix == expected


def test_equal_texts_keep_a_token_each() -> None:
    ids = np.tile(np.arange(5, 15, dtype=np.int32), 3)
    batch = Batch.of(spec_from_config(SIZES), ids, np.array([0, 10, 20, 30], np.int32), None)
    shared = batch.with_shared_prefix()
    assert shared.prefix == 9
    assert shared.ids.tolist() == [*range(5, 14), 14, 14, 14]
    assert shared.keys is not None
    np.testing.assert_array_equal(shared.keys.starts, [0, 9, 19, 29, 39])
    keys = np.concatenate([np.arange(9), np.arange(9), [9], np.arange(9), [10], np.arange(9), [11]])
    np.testing.assert_array_equal(shared.keys.tokens, keys)
    np.testing.assert_array_equal(shared.keys.of_tokens, [*range(9), 18, 28, 38])
    np.testing.assert_array_equal(shared.positions, [*range(9), 9, 9, 9])


def test_an_empty_text_or_batch_shares_nothing() -> None:
    spec = spec_from_config(SIZES)
    none = np.zeros(0, np.int32)
    empty = Batch.of(spec, none, np.zeros(1, np.int32), None)
    assert empty.with_shared_prefix() is empty
    ids = np.arange(5, 25, dtype=np.int32)
    one = Batch.of(spec, ids, np.array([0, 20, 20], np.int32), None)
    assert one.with_shared_prefix() is one


def test_texts_of_other_types_differ() -> None:
    ids, starts = draw((20, 20), prefix=15)
    spec = spec_from_config(SIZES)
    spec = replace(spec, embedding=replace(spec.embedding, num_segments=2))
    types = np.zeros(40, np.int32)
    types[26:] = 1
    assert Batch.of(spec, ids, starts, types).with_shared_prefix().prefix == 6
