"""What leaves the denominator of in-batch negatives, and sums in tiles and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine.errors import InputError, UnknownNameError
from encoder_engine.objectives.vectors import tiles
from encoder_engine.objectives.vectors.in_batch import Candidates, TextIds, in_batch_negatives
from encoder_engine.objectives.vectors.late_interaction import late_interaction_negatives

ROWS = 9


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equal_texts_leave_the_denominator() -> None:
    queries, documents = draw(4, 5), draw(5, 5, seed=1)
    # Row 1 has the positive of row 0, row 3 the query of row 0, and the negative is query 2.
    documents[1] = documents[0]
    queries[3] = queries[0]
    ids = TextIds(
        queries_B=torch.tensor([1, 2, 3, 1]), documents_C=torch.tensor([10, 10, 11, 12, 3])
    )
    left_out = {0: {1, 3}, 1: {0}, 2: {4}, 3: {0}}
    cosines = 20.0 * F.normalize(queries, dim=1) @ F.normalize(documents, dim=1).T
    expected = 0.0
    for row in range(4):
        kept = [c for c in range(5) if c not in left_out[row]]
        expected += float(cosines[row, kept].logsumexp(0) - cosines[row, row])
    assert float(in_batch_negatives(queries, documents, ids=ids)) == pytest.approx(expected)


@pytest.mark.parametrize("elements", [1, 40, 2**22])
def test_tiles_and_shares_add_up(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", elements)
    queries, documents = draw(ROWS, 5), draw(2 * ROWS, 5, seed=1)
    directions: Any = ("query_to_document", "document_to_query")
    expected = 0.0
    cosines = 20.0 * F.normalize(queries, dim=1) @ F.normalize(documents, dim=1).T
    own = cosines.diagonal()
    expected = float((cosines.logsumexp(1) + cosines[:, :ROWS].logsumexp(0) - 2 * own).sum()) / 2
    parts, gradient = 0.0, torch.zeros_like(documents)
    for rank in range(3):
        leaf = documents.clone().requires_grad_()
        part = in_batch_negatives(
            queries, leaf, directions=directions, joint=False, share=(rank, 3)
        )
        part.backward()  # type: ignore[no-untyped-call]
        parts += float(part.detach())
        assert leaf.grad is not None
        gradient += leaf.grad
    assert parts == pytest.approx(expected)
    leaf = documents.clone().requires_grad_()
    in_batch_negatives(queries, leaf, directions=directions, joint=False).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(gradient, leaf.grad)


@pytest.mark.parametrize("elements", [1, 50])
def test_late_interaction_in_tiles(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([3, 1, 2, 4])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    texts = draw(10, 5), draw(10, 5, seed=1)
    candidates = Candidates(owners_C=torch.arange(4), num_rows=4)
    found = []
    for size in (2**22, elements):
        for module in ("tiles", "late_interaction"):
            monkeypatch.setattr(f"encoder_engine.objectives.vectors.{module}.TILE_ELEMENTS", size)
        leaves = [x.clone().requires_grad_() for x in texts]
        total = late_interaction_negatives(leaves[0], offsets, leaves[1], offsets, candidates)
        total.backward()  # type: ignore[no-untyped-call]
        found.append([total.detach(), *(x.grad for x in leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_bad_arguments_are_refused() -> None:
    queries, documents = draw(3, 5), draw(2, 5)
    with pytest.raises(InputError, match="as many positives"):
        in_batch_negatives(queries, documents)
    wrong: Any = ("sideways",)
    with pytest.raises(UnknownNameError, match="query_to_document"):
        in_batch_negatives(queries, queries, directions=wrong)
    with pytest.raises(InputError, match="which has the positives"):
        in_batch_negatives(queries, queries, directions=("document_to_query",))
    with pytest.raises(InputError, match="joint=True"):
        in_batch_negatives(
            queries, queries, directions=("query_to_document", "query_to_query"), joint=False
        )
