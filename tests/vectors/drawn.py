"""Holding vectors to the numeric budget, with sentence-transformers as eager and as truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from encoder_engine.ops.testing import assert_within_budget

Vectors = np.ndarray[Any, np.dtype[Any]]


def load_sentence_transformer(path: object, dtype: torch.dtype = torch.float32) -> Any:
    """Load a directory in sentence-transformers; in float64 it tells the truth."""
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(path), device="cpu", local_files_only=True)
    return model.to(dtype)


def assert_vectors_agree(ours: Vectors, eager: Vectors, truth: Vectors, *, terms: int) -> None:
    """Hold float32 vectors to the budget; ``terms`` is the length of the longest sum."""
    assert_within_budget(
        torch.from_numpy(ours), torch.from_numpy(eager), torch.from_numpy(truth), terms=terms
    )
