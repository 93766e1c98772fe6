"""Steps for data engines (Ray, Spark, datasets) that add columns to a batch of texts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from encoder_engine.embedding.any_model import load_dense
from encoder_engine.embedding.library_keywords import check_names
from encoder_engine.errors import InputError
from encoder_engine.kinds.options import EncodeKeywords

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.embedding.static.embedder import StaticEmbedder
    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords

__all__ = ["BatchStep", "EmbedBatch"]


class BatchStep(ABC):
    """Adds a model's results as columns to a batch, which is a mapping of column names to values.

    The object holds only names and options, and loads the model at the first call in each process.
    It can therefore be pickled and sent to workers, which all compute the same.
    """

    def __init__(
        self, model: str | os.PathLike[str], load: Callable[..., Any], **loading: Any
    ) -> None:
        self._name, self._load, self._loading = model, load, loading
        self._model: Any = None
        self._lock = threading.Lock()

    @property
    def model(self) -> Any:
        """The model, loaded at its first use."""
        with self._lock:
            if self._model is None:
                self._model = self._load(self._name, **self._loading)
            return self._model

    def check(self, batch: Mapping[str, Any], read: Iterable[str], added: Iterable[str]) -> None:
        """Raise :class:`InputError` if a column to read is missing, or one to add exists."""
        for name in read:
            if name not in batch:
                raise InputError(f"the batch has no column {name!r}; there are {', '.join(batch)}")
        for name in added:
            if name in batch:
                raise InputError(f"the batch has a column {name!r} already; rename or drop it")

    @abstractmethod
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the added columns."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_model": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_lock": threading.Lock()}


class EmbedBatch(BatchStep):
    """Adds a column of vectors to a batch: ``EmbedBatch(model)({"text": [...]})``.

    A batch is a mapping of columns. ``text_column`` is a list, a numpy array or an Arrow array of
    texts; ``vector_column`` becomes float32 [n, D], or the type of ``precision``. The vectors are
    those of :meth:`Embedder.encode`, or of :meth:`StaticEmbedder.encode` for a static model, with
    the same options. ``device``, ``dtype``, ``quantization`` and ``engine``: see
    :meth:`Embedder.from_pretrained`. ``hub``: see :class:`HubKeywords`. Pickling stores only names
    and options; see :class:`BatchStep`.
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
        loading: dict[str, Any] = {"dtype": dtype, "quantization": quantization, **(hub or {})}
        super().__init__(model, load_dense, device=device, engine=engine, **loading)
        self.text_column, self.vector_column = text_column, vector_column
        check_names("EmbedBatch", options, EncodeKeywords)
        self._call: dict[str, Any] = {"on_truncation": on_truncation, **options}

    @property
    def embedder(self) -> Embedder | StaticEmbedder:
        """The embedder, loaded at its first use."""
        found: Embedder | StaticEmbedder = self.model
        return found

    @property
    def precision(self) -> str:
        """The precision of the vectors that are added; see :meth:`Embedder.encode`."""
        return str(self._call.get("precision", "float32"))

    @property
    def dimension(self) -> int:
        """The length of a vector that is added: features, or bytes of packed bits."""
        kind = self.embedder.kind
        return kind.stored_dimension(kind.resolve(**self._call))

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the column of vectors.

        Raises :class:`InputError` where ``text_column`` is missing or ``vector_column`` exists
        already. Other exceptions: see :meth:`Embedder.encode`.
        """
        self.check(batch, (self.text_column,), (self.vector_column,))
        vectors = self.embedder.encode(batch[self.text_column], **self._call)
        return {**batch, self.vector_column: vectors}
