"""Stored vectors: writing, verified reading, search and plots."""

from encoder_engine.vectors.precision import quantize_vectors
from encoder_engine.vectors.stored_vectors import StoredVectors, load_vectors

__all__ = ["StoredVectors", "load_vectors", "quantize_vectors"]
