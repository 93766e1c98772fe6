"""Windows and batches lose nothing and keep to their budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from encoder_engine.engine import limits
from encoder_engine.engine.batches import plan_batches
from encoder_engine.families.facts.spec import FeedForwardSpec
from encoder_engine.kinds import windows
from encoder_engine.packing.token_rows import take

if TYPE_CHECKING:
    import pytest

    from encoder_engine.embedding import Embedder

LENGTHS = st.lists(st.integers(1, 300), max_size=200).map(lambda n: np.array(n, dtype=np.int32))


# A busy machine draws slowly.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LENGTHS, st.integers(1, 1000))
def test_batches_hold_every_text_once_within_the_budget(
    lengths: np.ndarray[tuple[int], np.dtype[np.int32]], budget: int
) -> None:
    batches = plan_batches(lengths, budget)
    assert sorted(np.concatenate(batches).tolist() if batches else []) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or lengths[rows].sum() <= budget
    in_order = np.concatenate([lengths[rows] for rows in batches]) if batches else lengths
    assert (np.diff(in_order) <= 0).all()


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 2**32))
def test_taken_sequences_are_the_ones_asked_for(
    lengths: np.ndarray[tuple[int], np.dtype[np.int32]], seed: int
) -> None:
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.arange(cu_seqlens[-1], dtype=np.int32)
    rows = np.random.default_rng(seed).permutation(len(lengths))[: len(lengths) // 2]
    taken, bounds = take(values, cu_seqlens, rows)
    assert taken.dtype == bounds.dtype == np.int32
    assert bounds.tolist() == [0, *np.cumsum(lengths[rows]).tolist()]
    for index, row in enumerate(rows):
        expected = values[cu_seqlens[row] : cu_seqlens[row + 1]]
        np.testing.assert_array_equal(taken[bounds[index] : bounds[index + 1]], expected)


def test_windows_are_bounded_in_texts_and_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 3)
    monkeypatch.setattr(windows, "WINDOW_CHARACTERS", 10)
    texts = ["a", "b", "c", "d", "e" * 50, "f" * 4, "g" * 4, "h" * 4, "i"]
    sizes = [len(window) for window in windows.windows(iter(texts), len)]
    assert sizes == [3, 2, 3, 1]
    assert list(windows.windows(iter([]), len)) == []


def test_a_gpu_gets_larger_batches_than_a_cpu_and_wider_models_smaller_ones(
    tiny: Embedder,
) -> None:

    def tokens(width: int, dtype: str, device: str = "cpu") -> int:
        spec = tiny.engine.spec
        wide = replace(spec.blocks[0], feed_forward=FeedForwardSpec(width=width))
        spec = replace(spec, blocks=(*spec.blocks, wide))
        return limits.default_batch_tokens(spec, device, dtype)

    for width in (1536, 3072, 4096):
        for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
            # Beyond 32 MiB glibc gives memory back when it is freed.
            assert tokens(width, dtype) * width * itemsize <= 1 << 25
            assert 1024 < tokens(width, dtype) < tokens(width, dtype, "cuda:0")
    assert tokens(4096, "float32") < tokens(1536, "float32")
    assert tokens(1 << 30, "float32") == 1


def test_row_numbers_in_messages_stay_short() -> None:
    assert windows.first_rows(np.arange(3)) == "0, 1, 2"
    assert windows.first_rows(np.arange(8)) == "0, 1, 2, 3, 4 and 3 more"
