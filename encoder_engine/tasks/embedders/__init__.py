"""Tasks whose models embed or rank texts: embedding, late interaction, sparse vectors, ranking.

The PyTorch models are imported at their first use.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.tasks.embedders.late_interaction_model import LateInteractionModel
    from encoder_engine.tasks.embedders.sparse_model import SparseModel
    from encoder_engine.tasks.embedders.vector_model import EmbeddingModel

__all__ = ["EmbeddingModel", "LateInteractionModel", "SparseModel"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EmbeddingModel": "vector_model",
        "LateInteractionModel": "late_interaction_model",
        "SparseModel": "sparse_model",
    },
)
