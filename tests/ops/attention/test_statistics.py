"""Attention with statistics equals attention, and the statistics of the weights themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.aten import attention_statistics as aten
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.attention.weight_statistics import joined, statistics_of
from tests.ops.memory import peak_bytes

LENGTHS = [5, 1, 0, 17, 5, 40]
TERMS = ["plain", "window", "global", "causal", "alibi", "bias", "disentangled"]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def terms_of(name: str, sequences: Sequences) -> dict[str, Any]:
    """Return the optional arguments of a case with four heads of eight features."""
    disentangled = ops.Disentangled(draw(6, 4, 8), draw(6, 4, 8), torch.arange(11) % 6)
    terms: dict[str, dict[str, Any]] = {
        "plain": {},
        "window": {"window": 3},
        "global": {
            "window": 2,
            "global_rows": SelectedRows(torch.tensor([1, 8], dtype=torch.int32), sequences),
        },
        "causal": {"causal": True},
        "alibi": {"alibi_slopes_H": torch.tensor([0.5, 0.25, 0.1, 0.0], dtype=torch.float64)},
        "bias": {"relative_bias_HR": draw(4, 7)},
        "disentangled": {"disentangled": disentangled},
    }
    return terms[name]


# DeBERTa has as many key heads as heads.
CASES = [(name, heads) for name in TERMS for heads in (4, 2) if (name, heads) != (TERMS[-1], 2)]


@pytest.mark.parametrize(("terms", "key_heads"), CASES)
@pytest.mark.parametrize("tile", [2**19, 4 * 20, 1])
def test_statistics_are_those_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, terms: str, key_heads: int, tile: int
) -> None:
    monkeypatch.setattr(aten, "TILE", tile)
    sequences = Sequences.from_lengths(LENGTHS)
    query, key = 3 * draw(sequences.num_tokens, 4, 8), draw(sequences.num_tokens, key_heads, 8)
    marks = draw(sequences.num_tokens, 3, seed=1) > 0
    options = terms_of(terms, sequences)
    probabilities = ops.attention_probabilities(query, key, sequences, **options)
    weights = [probabilities[number, :, :n, :n].transpose(0, 1) for number, n in enumerate(LENGTHS)]
    value = draw(sequences.num_tokens, key_heads, 8, seed=2)
    mixed = ops.attention(query, key, value, sequences, implementation="reference", **options)
    for implementation in ("aten", "reference"):
        output, found = ops.attention_statistics(
            query, key, value, sequences, marks, implementation=implementation, **options
        )
        # Float64: a few hundred roundings, of sums of at most forty distances.
        torch.testing.assert_close(output, mixed, rtol=1e-11, atol=1e-11)
        for number, rows_LHL in enumerate(weights):
            start, stop = sequences.offsets[number : number + 2].tolist()
            if start == stop:
                continue
            expected = statistics_of(rows_LHL, marks[start:stop])
            torch.testing.assert_close(joined(found)[start:stop], expected, rtol=1e-11, atol=1e-11)
            offsets = rows_LHL.argmax(2) - torch.arange(stop - start)[:, None]
            assert torch.equal(found.offset_TH[start:stop], offsets)


def test_memory_of_aten_grows_with_the_tokens_and_not_with_their_square() -> None:
    def peak(length: int) -> int:
        query, marks = torch.randn(length, 4, 8), torch.ones(length, 1, dtype=torch.bool)
        operands = query, query, query, Sequences.from_lengths([length]), marks
        return peak_bytes(lambda: ops.attention_statistics(*operands, implementation="aten"))

    def stored(length: int) -> int:
        query, sequences = torch.randn(length, 4, 8), Sequences.from_lengths([length])
        return peak_bytes(lambda: ops.attention_probabilities(query, query, sequences))

    shorter, longer = peak(1024), peak(2048)
    assert shorter < longer <= 2 * shorter
    # All tiles kept would be these weights.
    assert stored(2048) >= 4 * 4 * 2048**2 > longer


def test_marks_of_another_batch_are_refused() -> None:
    sequences = Sequences.from_lengths([3])
    rows = torch.zeros(3, 1, 4)
    with pytest.raises(ShapeError, match="a row for each token"):
        ops.attention_statistics(rows, rows, rows, sequences, torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"must be torch\.bool"):
        ops.attention_statistics(rows, rows, rows, sequences, torch.ones(3, 1))
