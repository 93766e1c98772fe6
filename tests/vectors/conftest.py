"""Fixtures of the tests of stored vectors: the tiny model of the embedding tests."""

from tests.embedding.conftest import tiny, tiny_directory

__all__ = ["tiny", "tiny_directory"]
