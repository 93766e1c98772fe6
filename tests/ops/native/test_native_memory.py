"""The hash of memory sees every byte, whatever the number of threads."""

from __future__ import annotations

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

pytest.importorskip("encoder_engine._native")

from encoder_engine.ops.native.memory import hash_memory


def test_every_byte_counts_and_so_does_where_pieces_end() -> None:
    # Whole blocks and threads' chunks, and what is left of them.
    memory = torch.arange(1_000_003, dtype=torch.int64).to(torch.uint8)
    pieces = [memory[:700_001], memory[700_001:]]
    whole = hash_memory(pieces)
    threads = torch.get_num_threads()
    try:
        for num_threads in (1, 3):
            torch.set_num_threads(num_threads)
            assert hash_memory(pieces) == whole
    finally:
        torch.set_num_threads(threads)
    for place in (0, 7, 8, 63, 64, 262_143, 262_144, 700_000, 700_001, 1_000_002):
        memory[place] ^= 1
        assert hash_memory(pieces) != whole
        memory[place] ^= 1
    assert hash_memory(pieces) == whole
    assert hash_memory(pieces[::-1]) != whole
    assert hash_memory([memory]) != whole


def test_memory_is_held_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.nn.Parameter(torch.ones(100))
    memory = StorageWeakRef(parameter.untyped_storage())  # type: ignore[no-untyped-call]

    def read(_places: object, _num_threads: int) -> int:
        # As another thread may do meanwhile.
        parameter.data = parameter.data.clone()
        assert not memory.expired()  # type: ignore[no-untyped-call]
        return 0

    monkeypatch.setattr("encoder_engine._native.hash_memory", read)
    hash_memory([parameter])
    assert memory.expired()  # type: ignore[no-untyped-call]
