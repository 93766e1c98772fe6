"""Daft: adds a column of vectors to a dataframe, by workers that load the model once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.integrations.ray import check_cluster

if TYPE_CHECKING:
    from encoder_engine.embedding.embed_batch import EmbedBatch

__all__ = ["embed_column"]


def embed_column(
    column: Any,
    embed: EmbedBatch,
    *,
    num_workers: int,
    batch_rows: int = 4096,
    gpus_per_worker: int = 0,
) -> Any:
    """Return a Daft expression: the vectors of a column of texts, float32 of a fixed size.

    ``num_workers``: processes, each with its own copy of the model.
    ``batch_rows``: the most rows of a batch.
    The vectors are those of a single process. Raises :class:`InputError` where workers on Ray need
    more than the cluster has, for which they would wait without end.
    """
    try:
        import daft
    except ImportError:
        raise MissingDependencyError("Daft", library="daft", extra="daft") from None
    if num_workers < 1 or batch_rows < 1:
        raise InputError(
            f"num_workers and batch_rows must be at least 1, got {num_workers} and {batch_rows}"
        )
    if daft.get_or_infer_runner_type() == "ray":
        import ray

        check_cluster(ray, num_workers, gpus_per_worker=gpus_per_worker)
    dtype = daft.DataType.fixed_size_list(daft.DataType.float32(), embed.dimension)

    @daft.cls(max_concurrency=num_workers, use_process=True, gpus=gpus_per_worker)
    class Worker:
        def __init__(self, embed: EmbedBatch) -> None:
            self._embed = embed

        @daft.method.batch(return_dtype=dtype, batch_size=batch_rows)  # type: ignore[untyped-decorator]
        def vectors(self, texts: Any) -> Any:
            batch = {self._embed.text_column: texts.to_pylist()}
            return self._embed(batch)[self._embed.vector_column]

    return Worker(embed).vectors(column)
