"""Options of calls for scores and for sparse vectors, as given and with every default filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from encoder_engine.embedding.engines.engine import Activation
    from encoder_engine.embedding.options import OnTruncation

__all__ = [
    "Route",
    "ScoreCall",
    "ScoreKeywords",
    "ScoreOptions",
    "SparseCall",
    "SparseCallKeywords",
    "SparseOptions",
    "TokenCallKeywords",
]

Route = Literal["query", "document"]


class ScoreKeywords(TypedDict, total=False):
    """The keywords of :meth:`Ranker.score`."""

    prompt: str | None
    prompt_name: str | None
    activation: Activation | None
    batch_tokens: int | None
    batch_size: int | None
    on_truncation: OnTruncation
    show_progress_bar: bool | None


class TokenCallKeywords(TypedDict, total=False):
    """The keywords of :meth:`MultiVectorEmbedder.encode` that decide the vectors and their speed.

    See :meth:`Embedder.encode`.
    """

    prompt: str | None
    prompt_name: str | None
    normalize_embeddings: bool | None
    batch_tokens: int | None
    batch_size: int | None
    on_truncation: OnTruncation
    show_progress_bar: bool | None


@dataclass(frozen=True, kw_only=True)
class ScoreCall:
    """The options of one call as given; see :meth:`Ranker.score`."""

    prompt: str | None = None
    prompt_name: str | None = None
    activation: Activation | None = None
    batch_tokens: int | None = None
    batch_size: int | None = None
    on_truncation: OnTruncation = "ignore"


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of one call with every default filled in."""

    prompt: str
    activation: Activation
    batch_tokens: int
    batch_size: int | None
    on_truncation: OnTruncation
    num_labels: int

    def describe(self) -> dict[str, Any]:
        """Return what decides the scores, as values of JSON: the plan of a job records it."""
        return {
            "prompt": self.prompt,
            "num_prompt_tokens": 0,
            "normalized": False,
            "dimension": self.num_labels,
            "precision": "float32",
            "on_truncation": self.on_truncation,
            "activation": self.activation,
        }


class SparseCallKeywords(TypedDict, total=False):
    """The keywords of :meth:`SparseEmbedder.encode` that decide the vectors and their speed."""

    prompt: str | None
    prompt_name: str | None
    max_active_dims: int | None
    batch_tokens: int | None
    batch_size: int | None
    on_truncation: OnTruncation
    task: Route | None
    show_progress_bar: bool | None


@dataclass(frozen=True, kw_only=True)
class SparseCall:
    """The options of one call as given; see :meth:`SparseEmbedder.encode`."""

    prompt: str | None = None
    prompt_name: str | None = None
    max_active_dims: int | None = None
    batch_tokens: int | None = None
    batch_size: int | None = None
    on_truncation: OnTruncation = "ignore"
    route: Route | None = None


@dataclass(frozen=True, kw_only=True)
class SparseOptions:
    """The options of one call with every default filled in; ``dimension``: V."""

    prompt: str
    max_active_dims: int | None
    batch_tokens: int
    batch_size: int | None
    on_truncation: OnTruncation
    dimension: int
    route: Route = "document"

    def describe(self) -> dict[str, Any]:
        """Return what decides the vectors, as values of JSON: the plan of a job records it."""
        return {
            "prompt": self.prompt,
            "num_prompt_tokens": 0,
            "normalized": False,
            "dimension": self.dimension,
            "precision": "float32",
            "on_truncation": self.on_truncation,
            "max_active_dims": self.max_active_dims,
        }
