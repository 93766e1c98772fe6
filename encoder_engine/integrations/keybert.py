"""An embedder as KeyBERT's model, which must be of KeyBERT's own base class.

::

    from encoder_engine.integrations.keybert import EmbedderBackend

    model = keybert.KeyBERT(model=EmbedderBackend(embedder))
"""

from __future__ import annotations

from encoder_engine.errors import MissingDependencyError
from encoder_engine.integrations.backend import Backend

try:
    from keybert.backend import BaseEmbedder
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "keybert":
        raise
    raise MissingDependencyError(__name__, library="keybert") from None

__all__ = ["EmbedderBackend"]


class EmbedderBackend(Backend, BaseEmbedder):  # type: ignore[misc]
    """The backend that KeyBERT embeds texts with; see :class:`Backend`."""
