"""Stored vectors: writing, verified reading, search, plots. Names are imported at first use."""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.hybrid import fuse_ranks
    from encoder_engine.vectors.precision import quantize_vectors
    from encoder_engine.vectors.search import search_vectors
    from encoder_engine.vectors.stored_vectors import StoredVectors, load_vectors

__all__ = [
    "Hit",
    "StoredVectors",
    "fuse_ranks",
    "load_vectors",
    "quantize_vectors",
    "search_vectors",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Hit": "hits",
        "StoredVectors": "stored_vectors",
        "fuse_ranks": "hybrid",
        "load_vectors": "stored_vectors",
        "quantize_vectors": "precision",
        "search_vectors": "search",
    },
)
