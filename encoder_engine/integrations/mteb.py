"""An embedder as a model of MTEB, the benchmark of embeddings.

::

    import mteb
    from encoder_engine.integrations.mteb import MtebEncoder

    model = MtebEncoder(ee.Embedder.from_pretrained("intfloat/e5-small-v2"))
    mteb.evaluate(model, mteb.get_tasks(["STSBenchmark"]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.engine.choosing import torch_engine
from encoder_engine.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from encoder_engine.embedding import Embedder, StaticEmbedder

__all__ = ["MtebEncoder"]

# Arguments of MTEB that change no vector.
IDLE = frozenset(["batch_size", "hf_split", "hf_subset"])


class MtebEncoder:
    """Implements ``EncoderProtocol`` of mteb version 2 with an embedder.

    The prompt of a task is the first of these names that the directory has: task and prompt type
    (``"NFCorpus-query"``), task, kind of task and prompt type, kind of task, prompt type.

    name: the model's name in results; None: the path that it was loaded from.
    """

    def __init__(self, embedder: Embedder | StaticEmbedder, *, name: str | None = None) -> None:
        self.embedder = embedder
        self.name = embedder.name if name is None else name

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any] | str],
        *,
        task_metadata: Any = None,
        prompt_type: Any = None,
        **options: Any,
    ) -> Any:
        """Embed the texts of batches, float32 [N, D].

        ``options``: ``encode_kwargs`` of ``mteb.evaluate``, which are those of the embedder's
        ``encode``. ``batch_size`` is ignored: batches are cut by tokens, and their size changes no
        vector.
        """
        texts: list[str] = []
        for batch in inputs:
            texts += [batch] if isinstance(batch, str) else batch["text"]
        given: dict[str, Any] = {"on_truncation": "ignore"}
        given |= {name: value for name, value in options.items() if name not in IDLE}
        routes: Mapping[Any, Any] = getattr(self.embedder, "routes", {})
        embedder = routes.get(getattr(prompt_type, "value", prompt_type), self.embedder)
        return embedder.encode(
            texts, prompt_name=self._prompt_name(task_metadata, prompt_type), **given
        )

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare all vectors with all by the model's own similarity: a tensor [N, M]."""
        found = self.embedder.similarity(embeddings1, embeddings2)
        return torch_engine("mteb").as_tensor(found)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Compare vectors in equal rows by the model's similarity: a tensor [N]."""
        found = self.embedder.similarity_pairwise(embeddings1, embeddings2)
        return torch_engine("mteb").as_tensor(found)

    @property
    def mteb_model_meta(self) -> Any:
        """The description of the model in MTEB's results."""
        try:
            from mteb.models import ModelMeta
        except ImportError:
            raise MissingDependencyError(
                "the description of a model for mteb", library="mteb", extra="mteb"
            ) from None
        return ModelMeta.create_empty(
            {"name": self.name, "embed_dim": self.embedder.dimension, "framework": []}
        )

    def _prompt_name(self, task: Any, prompt_type: Any) -> str | None:
        kind = getattr(prompt_type, "value", prompt_type)
        names = [kind]
        if task is not None:
            names = [f"{task.name}-{kind}", task.name, f"{task.type}-{kind}", task.type, kind]
        return next((name for name in names if name in self.embedder.prompts), None)
