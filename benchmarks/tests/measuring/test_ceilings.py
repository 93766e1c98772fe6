"""Peak rates are rates that were reached, and counted operations are those that run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases.encoder import TINY
from benchmarks.measuring import ceilings
from encoder_engine import Encoder, ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.packing import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measure quickly."""
    monkeypatch.setattr(ceilings, "CPU_SIZES", ((64, 32, 64),))
    monkeypatch.setattr(ceilings, "CPU_COPY_BYTES", 1 << 16)
    monkeypatch.setattr(ceilings, "SECONDS", 0.0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_ceiling_is_the_rate_of_the_fastest_way(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []

    def least_seconds(way: Callable[[], object], _device: str) -> float:
        product = way()
        assert isinstance(product, torch.Tensor)
        assert product.shape == (64, 64)
        seconds.append(4.0 - len(seconds))
        return seconds[-1]

    monkeypatch.setattr(ceilings, "_least_seconds", least_seconds)
    assert ceilings._product_rate("cpu", precision, 1) == 2 * 64 * 32 * 64 / min(seconds)


def test_the_limit_of_integers_is_not_our_own_products_alone() -> None:
    first, *others = ceilings._products("cpu", "int8", 64, 32, 64)
    assert first().dtype == torch.int32
    assert others


def test_what_was_just_measured_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([3.0, 5.0, 4.0])
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ceiling = ceilings.Ceiling(lambda: next(rates))
    found = []
    for seconds in (0, ceilings.RECENT / 2, ceilings.RECENT + 1, 2 * ceilings.RECENT + 2):
        clock[0] = seconds
        found.append(ceiling())
    assert found == [3.0, 3.0, 5.0, 4.0]
    assert next(rates, None) is None


def test_copying_counts_what_is_read_and_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_least_seconds", lambda _call, _device: 2.0)
    assert ceilings._copy_rate("cpu", 1) == 1 << 16


def test_the_operations_of_an_encoder_are_those_it_runs() -> None:
    lengths = [3, 9, 1]
    encoder = Encoder(spec_from_config(TINY)).eval()
    batch = pack([[5] * length for length in lengths])
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), ops.use("reference"), counter:
        encoder(batch)
    pooler = 2 * len(lengths) * TINY["hidden_size"] ** 2
    counted = counter.get_total_flops() - (pooler if encoder.pooler is not None else 0)
    assert counted == ceilings.encoder_operations(TINY, lengths)


def test_gates_and_windows_are_counted() -> None:
    absent = ("hidden_act", "layer_norm_eps", "type_vocab_size")
    gated = {key: value for key, value in TINY.items() if key not in absent}
    gated |= {"model_type": "modernbert", "num_hidden_layers": 3}
    gated |= {"local_attention": 4, "pad_token_id": 0, "max_position_embeddings": 16}
    lengths, width = [2, 9], TINY["hidden_size"]
    weights = 4 * width**2 + 3 * width * TINY["intermediate_size"]
    # Two tokens on either side: 9 rows see 3, 4, 5 x 5, 4, 3. The first layer has no window.
    pairs = 3 * (2 * 2) + 9 * 9 + 2 * 39
    counted = ceilings.encoder_operations(gated, lengths)
    assert counted == 3 * 2 * sum(lengths) * weights + 4 * pairs * width
