"""Models of sentence-transformers as eager, and their copies in float64 as truth."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.ops.testing import assert_within_budget
from tests.embedding.tiny_model import WIDTH

if TYPE_CHECKING:
    from pathlib import Path

# The longest sum of a tiny model, as in the other tests of it.
TERMS = 3 * WIDTH + 40


def library_model(kind: str, path: Path) -> Any:
    """Load a directory in sentence-transformers, as a model of this class."""
    module = pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(module, kind)(str(path), device="cpu")


def library_models(kind: str, path: Path) -> tuple[Any, Any]:
    """Load a directory in sentence-transformers, in float32 and in float64."""
    model = library_model(kind, path)
    return model, copy.deepcopy(model).double()


def assert_agree(
    ours: Any,
    eager: Any,
    truth: Any,
    what: str = "output",
    *,
    terms: int = TERMS,
    size: float | None = None,
    eager_error: float = 0.0,
) -> None:
    """Hold arrays or tensors, sparse ones too, to the budget; ``truth`` in float64."""
    values = [dense(value) for value in (ours, eager, truth)]
    assert_within_budget(
        values[0],
        values[1],
        values[2].double(),
        what,
        terms=terms,
        size=size,
        eager_error=eager_error,
    )


def dense(value: Any) -> torch.Tensor:
    """Return an array or a tensor as a dense tensor."""
    if isinstance(value, torch.Tensor):
        return value.detach().to_dense()
    return torch.from_numpy(np.ascontiguousarray(value).reshape(np.shape(value)))
