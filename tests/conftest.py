"""A small embedder, which the tests of several rooms share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from encoder_engine.embedding import Embedder
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a sentence-transformers directory once; nobody changes it."""
    return write_sentence_directory(
        tmp_path_factory.mktemp("tiny"),
        settings={"prompts": {"query": "query: "}, "default_prompt_name": None},
    )


@pytest.fixture(scope="session")
def tiny(tiny_directory: Path) -> Embedder:
    """Load the tiny directory once; nobody changes the embedder."""
    return Embedder.from_pretrained(tiny_directory, device="cpu")


@pytest.fixture(scope="session", params=["compiled", "torch"])
def tiny_by_engine(tiny_directory: Path, request: pytest.FixtureRequest) -> Embedder:
    """Load the tiny directory once for each engine; nobody changes the embedders."""
    return Embedder.from_pretrained(tiny_directory, device="cpu", engine=request.param)
