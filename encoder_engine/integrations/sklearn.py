"""An embedder as a scikit-learn transformer, for pipelines and searches over its options.

::

    pipeline = make_pipeline(TextEmbedder("intfloat/e5-small-v2"), LogisticRegression())
    search = GridSearchCV(pipeline, {"textembedder__pooling": ["mean", "cls"]})
"""

from __future__ import annotations

from typing import Any, Self

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.any_model import load_dense
from encoder_engine.errors import MissingDependencyError

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingDependencyError(__name__, library="scikit-learn") from None

__all__ = ["TextEmbedder"]


@dataclass(eq=False, repr=False)
class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns texts into features; ``fit`` loads the model, ``transform`` embeds.

    The options are those of :meth:`Embedder.from_pretrained` and :meth:`Embedder.encode`. A pickle
    of a fitted one names the model's path and a digest; see :class:`Model`.
    """

    model: str
    pooling: str | list[str] | None = None
    max_seq_length: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    normalize_embeddings: bool | None = None
    truncate_dim: int | None = None

    def fit(self, texts: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Load the model; the texts are not read."""
        names = ("pooling", "max_seq_length", "device", "dtype", "quantization")
        self.embedder_ = load_dense(self.model, **{name: vars(self)[name] for name in names})
        self.embedder_.pickle_by = "path"
        self._n_features_out = self.embedder_.kind.resolve(**self._options()).dimension
        return self

    def transform(self, texts: Any) -> Any:
        """Embed texts, float32 [N, D]."""
        check_is_fitted(self)
        return self.embedder_.encode(texts, **self._options())

    def _options(self) -> dict[str, Any]:
        names = ("prompt", "prompt_name", "normalize_embeddings", "truncate_dim")
        return {name: vars(self)[name] for name in names}
