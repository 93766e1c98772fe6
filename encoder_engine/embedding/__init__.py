"""Vectors from texts: the embedder, and the files it reads from and writes to."""

from encoder_engine.embedding.batch import EmbedBatch
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.precision import quantize_vectors
from encoder_engine.embedding.recipe import Recipe, encoder_directory, read_recipe
from encoder_engine.embedding.window import EmbeddedWindow

__all__ = [
    "EmbedBatch",
    "EmbeddedWindow",
    "Embedder",
    "Recipe",
    "encoder_directory",
    "quantize_vectors",
    "read_recipe",
]
