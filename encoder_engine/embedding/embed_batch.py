"""A stateless step for data engines (Ray, Spark, datasets): adds vectors to a batch of texts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

from encoder_engine.embedding.any_model import load_dense
from encoder_engine.embedding.library_keywords import check_names
from encoder_engine.errors import InputError
from encoder_engine.kinds.options import EncodeKeywords

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Unpack

    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.embedding.static.embedder import StaticEmbedder
    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords

__all__ = ["EmbedBatch"]


class EmbedBatch:
    """Adds a column of vectors to a batch: ``EmbedBatch(model)({"text": [...]})``.

    A batch is a mapping of columns. ``text_column`` is a list, a numpy array or an Arrow array of
    texts; ``vector_column`` becomes float32 [n, D], or the type of ``precision``. The vectors are
    those of :meth:`Embedder.encode`, or of :meth:`StaticEmbedder.encode` for a static model, with
    the same options. ``device``, ``dtype``, ``quantization`` and ``engine``: see
    :meth:`Embedder.from_pretrained`. ``hub``: see :class:`HubKeywords`.

    The object holds names and options alone, and loads the model at the first call in each process.
    It can therefore be pickled and sent to workers, which all compute the same.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        text_column: str = "text",
        vector_column: str = "embedding",
        device: str = "auto",
        dtype: str = "auto",
        quantization: str | None = None,
        engine: EngineChoice = "auto",
        on_truncation: Literal["ignore", "error"] = "ignore",
        hub: HubKeywords | None = None,
        **options: Unpack[EncodeKeywords],
    ) -> None:
        self.text_column, self.vector_column = text_column, vector_column
        self._model = model
        self._loading: dict[str, Any] = {
            "device": device,
            "dtype": dtype,
            "quantization": quantization,
            "engine": engine,
            **(hub or {}),
        }
        check_names("EmbedBatch", options, EncodeKeywords)
        self._call: dict[str, Any] = {"on_truncation": on_truncation, **options}
        self._embedder: Embedder | StaticEmbedder | None = None
        self._lock = threading.Lock()

    @property
    def embedder(self) -> Embedder | StaticEmbedder:
        """The embedder, loaded at its first use."""
        with self._lock:
            if self._embedder is None:
                self._embedder = load_dense(self._model, **self._loading)
            return self._embedder

    @property
    def dimension(self) -> int:
        """The length of a stored vector: features, or bytes of packed bits."""
        kind = self.embedder.kind
        return kind.stored_dimension(kind.resolve(**self._call))

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the column of vectors.

        Raises :class:`InputError` where ``text_column`` is missing or ``vector_column`` exists
        already. Other exceptions: see :meth:`Embedder.encode`.
        """
        if self.text_column not in batch:
            raise InputError(
                f"the batch has no column {self.text_column!r}; there are {', '.join(batch)}"
            )
        if self.vector_column in batch:
            raise InputError(
                f"the batch has a column {self.vector_column!r} already; name another vector_column"
            )
        vectors = self.embedder.encode(batch[self.text_column], **self._call)
        return {**batch, self.vector_column: vectors}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_embedder": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": threading.Lock()}
