"""A table's gradient sums every row of an id once, however its rows lie among the chunks."""

from __future__ import annotations

import pytest
import torch

from encoder_engine.ops import gpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not gpu.interpreted(), reason="neither a GPU nor TRITON_INTERPRET=1"
)
IDS = {
    "none": [],
    "one row": [2],
    "one id in a whole chunk": [1] * 32,
    "one id in a chunk and a row": [1] * 33,
    "an id ends with its chunk": [0] * 32 + [3] * 32,
    "an id over more chunks than are loaded at once": [0] * 5 + [2] * 330 + [3] * 5,
    "an id over exactly as many": [1] * (32 * 9) + [2],
    "scattered": [(7 * i * i) % 4 for i in range(100)],
}


@pytest.mark.parametrize("name", IDS)
def test_sums_of_whole_numbers_are_exact(name: str) -> None:
    from encoder_engine.kernels.embedding.table_gradient import table_gradient

    ids = torch.tensor(IDS[name], dtype=torch.int32, device=DEVICE)
    generator = torch.Generator().manual_seed(0)
    grad = torch.randint(-50, 50, (len(ids), 19), generator=generator).float().to(DEVICE)
    expected = torch.zeros(5, 19, device=DEVICE).index_add(0, ids, grad)
    assert torch.equal(table_gradient(grad, ids, 5), expected)
