"""A text's vector is bit for bit the same whatever company it is computed in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder
from tests import ROOT
from tests.embedding.tiny_model import write_transformers_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

# Tokens of the shortest text there is: such a budget makes batches of one.
ONE_TEXT = 1
BUDGETS = (ONE_TEXT, 7, 64, 500, 4096, 10**6)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Read real texts; every tenth is joined with those after it to be long."""
    lines = (ROOT / "examples" / "python_stdlib.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line)["text"] for line in lines[:40]]
    entries[::10] = [" ".join(entries[i : i + 10]) for i in range(0, 40, 10)]
    return ["", *entries]


@pytest.fixture(scope="module", params=["compiled", "torch"])
def embedder(minilm: Path, request: pytest.FixtureRequest) -> Embedder:
    """Load MiniLM on the CPU, by each engine."""
    return Embedder.from_pretrained(minilm, device="cpu", num_threads=1, engine=request.param)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute small batches by one thread: on a busy machine several wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def expected(embedder: Embedder, texts: list[str]) -> Vectors:
    """Embed all texts in one call."""
    return embedder.encode(texts, on_truncation="ignore")


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [ONE_TEXT, 7, 500, 10**6, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (64, 4096))],
)
def test_the_batch_budget_changes_no_bit(
    embedder: Embedder, texts: list[str], expected: Vectors, budget: int
) -> None:
    found = embedder.encode(texts, batch_tokens=budget, on_truncation="ignore")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 7, pytest.param(64, marks=pytest.mark.exhaustive)])
def test_the_number_of_texts_in_a_call_changes_no_bit(
    embedder: Embedder, texts: list[str], expected: Vectors, batch_size: int
) -> None:
    for start in range(0, len(texts), batch_size):
        some = texts[start : start + batch_size]
        found = embedder.encode(some, batch_tokens=10**6, on_truncation="ignore")
        np.testing.assert_array_equal(found, expected[start : start + batch_size])


def test_the_order_of_the_texts_changes_no_bit(
    embedder: Embedder, texts: list[str], expected: Vectors
) -> None:
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(texts))
        found = embedder.encode([texts[i] for i in order], on_truncation="ignore")
        np.testing.assert_array_equal(found, expected[order])


def test_the_number_of_threads_changes_no_bit(
    embedder: Embedder, texts: list[str], expected: Vectors
) -> None:
    for num_threads in (2, 3):
        other = Embedder.from_pretrained(
            embedder.recipe.encoder_directory,
            device="cpu",
            num_threads=num_threads,
            engine="compiled" if embedder.engine.name == "compiled" else "torch",
        )
        assert other.engine.num_threads == num_threads
        found = other.encode(texts, on_truncation="ignore")
        np.testing.assert_array_equal(found, expected)


def assert_blind_to_company(embedder: Embedder) -> None:
    words = ("row", "text", "query", "long", "a", "7")
    texts = [" ".join(words[(n + i) % 6] for i in range(n % 14)) for n in range(70)]
    expected = embedder.encode(texts)
    for budget in BUDGETS:
        np.testing.assert_array_equal(embedder.encode(texts, batch_tokens=budget), expected)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("modes", [("mean", "max", "cls"), ("weightedmean", "lasttoken")])
def test_every_pooling_mode_is_blind_to_company(
    tiny_directory: Path, modes: list[str], engine: Any
) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu", pooling=modes, engine=engine)
    assert_blind_to_company(embedder)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize(("width", "num_heads"), [(30, 3), (30, 1), (36, 3), (16, 1), (30, 10)])
def test_widths_and_heads_of_every_size_are_blind_to_company(
    tmp_path: Path, width: int, num_heads: int, engine: Any
) -> None:
    write_transformers_directory(tmp_path, width=width, num_heads=num_heads)
    assert_blind_to_company(
        Embedder.from_pretrained(tmp_path, device="cpu", pooling="mean", engine=engine)
    )
