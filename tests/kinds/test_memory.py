"""A device whose memory runs out: batches are cut, no row is lost, no bit changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import DeviceMemoryError
from encoder_engine.kinds.windows import WINDOW_TEXTS
from encoder_engine.models import Encoder

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"text {'long ' * (row % 9)}{row}" for row in range(300)]


class SmallDevice:
    """Stands between an embedder and its encoder, and has room for so many tokens at once."""

    def __init__(self, embedder: Embedder, room: int) -> None:
        self.room = room
        self.tried: list[int] = []
        assert isinstance(embedder.encoder, Encoder)
        embedder.encoder.register_forward_pre_hook(self._forward)

    def _forward(self, _encoder: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        num_tokens = len(arguments[0].input_ids)
        self.tried.append(num_tokens)
        if num_tokens > self.room:
            raise torch.OutOfMemoryError(f"tried to allocate {num_tokens} tokens")


@pytest.fixture
def embedder(tiny_directory: Path) -> Embedder:
    """Load one for each test: what it learns of its device's memory stays with it."""
    return Embedder.from_pretrained(tiny_directory, device="cpu", engine="torch")


@pytest.mark.parametrize("room", [16, 17, 100, 1000])
def test_a_batch_that_does_not_fit_is_cut_and_changes_no_bit(
    tiny: Embedder, embedder: Embedder, room: int
) -> None:
    device = SmallDevice(embedder, room)
    found = embedder.encode(TEXTS, batch_tokens=100_000, on_truncation="ignore")
    assert max(device.tried) > room
    np.testing.assert_array_equal(found, tiny.encode(TEXTS, on_truncation="ignore"))


def test_what_did_not_fit_once_is_not_tried_again(embedder: Embedder) -> None:
    device = SmallDevice(embedder, 100)
    embedder.encode(TEXTS, batch_tokens=100_000, on_truncation="ignore")
    failed = sum(tokens > device.room for tokens in device.tried)
    device.tried.clear()
    embedder.encode(TEXTS, batch_tokens=100_000, on_truncation="ignore")
    assert failed > 1
    assert max(device.tried) <= device.room
    # The next is half of what failed, so a budget is at least a quarter of what fits.
    assert max(device.tried) > device.room // 4


def test_a_budget_below_what_fits_is_kept() -> None:
    limit = MemoryLimit()
    assert limit.cap(7) == 7
    limit.lower(1000)
    assert (limit.cap(100), limit.cap(10_000)) == (100, 500)
    limit.lower(90)
    limit.lower(4000)
    assert limit.cap(10_000) == 45


def test_a_text_that_does_not_fit_alone_is_named(embedder: Embedder) -> None:
    SmallDevice(embedder, 12)
    texts = ["a"] * WINDOW_TEXTS + ["b", "long " * 40, "c"]
    with pytest.raises(DeviceMemoryError, match=f"text {WINDOW_TEXTS + 1} has 16 tokens") as caught:
        embedder.encode(texts, on_truncation="ignore")
    assert caught.value.row == WINDOW_TEXTS + 1
    assert "max_seq_length" in str(caught.value)


def test_another_error_of_the_encoder_is_not_taken_for_want_of_memory(embedder: Embedder) -> None:
    def fail(_encoder: torch.nn.Module, _arguments: tuple[Any, ...]) -> None:
        raise RuntimeError("something else")

    assert isinstance(embedder.encoder, Encoder)
    embedder.encoder.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="something else"):
        embedder.encode(TEXTS)


@pytest.mark.gpu
def test_a_full_gpu_gives_the_vectors_of_smaller_batches(minilm: Path) -> None:
    embedder = Embedder.from_pretrained(minilm, device="cuda")
    texts = ["word " * (20 + row % 200) for row in range(2000)]
    expected = embedder.encode(texts, batch_tokens=4096, on_truncation="ignore")
    room = torch.cuda.memory_reserved() + (400 << 20)
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.mem_get_info()[1])
    try:
        found = embedder.encode(texts, batch_tokens=1 << 20, on_truncation="ignore")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert embedder.memory_limit.cap(1 << 20) < 1 << 20
    cosines = (found * expected).sum(axis=1)
    # Each product of two unit vectors rounds 384 terms in float32.
    assert cosines.min() >= 1 - 384 * float(np.finfo(np.float32).eps)
