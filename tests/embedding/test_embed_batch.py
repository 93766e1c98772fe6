"""``EmbedBatch``: one step that any engine can pickle, send and call."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError, TextError

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["the text", "a row", ""]


def test_a_batch_keeps_its_columns_and_gets_one_of_vectors(tiny_directory: Path) -> None:
    embed = ee.EmbedBatch(tiny_directory, device="cpu", prompt_name="query", truncate_dim=5)
    found = embed({"id": [1, 2, 3], "text": TEXTS})
    assert list(found) == ["id", "text", "embedding"]
    expected = ee.Embedder.from_pretrained(tiny_directory, device="cpu").encode(
        TEXTS, prompt_name="query", truncate_dim=5
    )
    np.testing.assert_array_equal(found["embedding"], expected)
    assert embed.dimension == 5
    modules = ee.EmbedBatch(tiny_directory, device="cpu", engine="torch")
    assert modules.embedder.engine.name == "torch"


@pytest.mark.parametrize("kind", ["list", "str", "object", "arrow"])
def test_texts_may_be_a_column_of_any_engine(tiny_directory: Path, kind: str) -> None:
    column: Any = TEXTS
    if kind == "arrow":
        column = pytest.importorskip("pyarrow").array(TEXTS)
    elif kind != "list":
        column = np.array(TEXTS, dtype=kind)
    embed = ee.EmbedBatch(tiny_directory, device="cpu")
    expected = ee.Embedder.from_pretrained(tiny_directory, device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(embed({"text": column})["embedding"], expected)


def test_it_is_pickled_without_the_model_and_loads_it_when_called(tiny_directory: Path) -> None:
    embed = ee.EmbedBatch(str(tiny_directory), device="cpu")
    before = pickle.dumps(embed)
    vectors = embed({"text": TEXTS})["embedding"]
    after = pickle.dumps(embed)
    assert len(after) == len(before) < 2000
    np.testing.assert_array_equal(pickle.loads(after)({"text": TEXTS})["embedding"], vectors)


def test_bad_batches_are_refused(tiny_directory: Path) -> None:
    embed = ee.EmbedBatch(tiny_directory, device="cpu")
    with pytest.raises(InputError, match="no column 'text'; there are body"):
        embed({"body": TEXTS})
    with pytest.raises(InputError, match="'embedding' already"):
        embed({"text": TEXTS, "embedding": TEXTS})
    with pytest.raises(TextError, match="text 1"):
        embed({"text": ["a", None]})
