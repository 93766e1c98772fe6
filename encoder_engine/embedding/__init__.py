"""Embedders, rankers and sparse encoders: texts in, vectors or scores out.

Each name is imported at its first use: importing an embedder does not import the code that embeds
whole files.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.embedding.causal_ranker import CausalRanker, PairTemplate
    from encoder_engine.embedding.embed_batch import EmbedBatch
    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.embedding.hybrid import HybridEmbedder, HybridVectors
    from encoder_engine.embedding.multi_vector import MultiVectorEmbedder
    from encoder_engine.embedding.ranker import Ranked, Ranker
    from encoder_engine.embedding.scorer import Scorer
    from encoder_engine.embedding.sparse import SparseEmbedder, SparseVectors
    from encoder_engine.embedding.static.embedder import Coverage, StaticEmbedder
    from encoder_engine.kinds.windows import EmbeddedWindow
    from encoder_engine.opening.opening import read_recipe
    from encoder_engine.opening.recipe import PoolingRecipe, encoder_directory
    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.hybrid import fuse_ranks
    from encoder_engine.vectors.precision import quantize_vectors
    from encoder_engine.vectors.search import search_vectors
    from encoder_engine.vectors.stored_vectors import StoredVectors, load_vectors
    from encoder_engine.vectors.token_vectors import TokenVectors, max_similarity

__all__ = [
    "CausalRanker",
    "Coverage",
    "EmbedBatch",
    "EmbeddedWindow",
    "Embedder",
    "Hit",
    "HybridEmbedder",
    "HybridVectors",
    "MultiVectorEmbedder",
    "PairTemplate",
    "PoolingRecipe",
    "Ranked",
    "Ranker",
    "Scorer",
    "SparseEmbedder",
    "SparseVectors",
    "StaticEmbedder",
    "StoredVectors",
    "TokenVectors",
    "encoder_directory",
    "fuse_ranks",
    "load_vectors",
    "max_similarity",
    "quantize_vectors",
    "read_recipe",
    "search_vectors",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CausalRanker": "causal_ranker",
        "Coverage": "static.embedder",
        "EmbedBatch": "embed_batch",
        "EmbeddedWindow": "encoder_engine.kinds.windows",
        "Embedder": "embedder",
        "Hit": "encoder_engine.vectors.hits",
        "HybridEmbedder": "hybrid",
        "HybridVectors": "encoder_engine.kinds.hybrid",
        "MultiVectorEmbedder": "multi_vector",
        "PairTemplate": "encoder_engine.kinds.pair_formats",
        "PoolingRecipe": "encoder_engine.opening.recipe",
        "Ranked": "encoder_engine.kinds.pairs",
        "Ranker": "ranker",
        "Scorer": "scorer",
        "SparseEmbedder": "sparse",
        "SparseVectors": "encoder_engine.vectors.sparse_vectors",
        "StaticEmbedder": "static.embedder",
        "StoredVectors": "encoder_engine.vectors.stored_vectors",
        "TokenVectors": "encoder_engine.vectors.token_vectors",
        "encoder_directory": "encoder_engine.opening.recipe",
        "fuse_ranks": "encoder_engine.vectors.hybrid",
        "load_vectors": "encoder_engine.vectors.stored_vectors",
        "max_similarity": "encoder_engine.vectors.token_vectors",
        "quantize_vectors": "encoder_engine.vectors.precision",
        "read_recipe": "encoder_engine.opening.opening",
        "search_vectors": "encoder_engine.vectors.search",
    },
)
