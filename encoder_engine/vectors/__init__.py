"""Stored vectors: writing, verified reading, search and plots. Imported at their first use."""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.vectors.precision import quantize_vectors
    from encoder_engine.vectors.stored_vectors import StoredVectors, load_vectors

__all__ = ["StoredVectors", "load_vectors", "quantize_vectors"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "StoredVectors": "stored_vectors",
        "load_vectors": "stored_vectors",
        "quantize_vectors": "precision",
    },
)
