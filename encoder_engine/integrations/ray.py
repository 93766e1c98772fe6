"""Ray Data: adds a column of vectors to a dataset, by actors that load the model once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from encoder_engine.embedding.embed_batch import EmbedBatch

__all__ = ["embed_dataset"]


def embed_dataset(
    dataset: Any,
    embed: EmbedBatch,
    *,
    num_workers: int,
    batch_rows: int = 4096,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
) -> Any:
    """Return a ``ray.data.Dataset`` with an added column of vectors, computed lazily.

    ``num_workers``: actors, each with its own copy of the model.
    ``batch_rows``: rows of a batch.
    ``cpus_per_worker``: cores that Ray reserves for each actor; leave at least one for reading.
    The vectors are those of a single process.
    """
    try:
        import ray.data
    except ImportError:
        raise MissingDependencyError("Ray Data", library="ray[data]", extra="ray") from None
    if num_workers < 1 or batch_rows < 1:
        raise InputError(
            f"num_workers and batch_rows must be at least 1, got {num_workers} and {batch_rows}"
        )
    return dataset.map_batches(
        _Actor,
        fn_constructor_args=(embed,),
        compute=ray.data.ActorPoolStrategy(size=num_workers),
        batch_size=batch_rows,
        batch_format="numpy",
        num_cpus=cpus_per_worker,
        num_gpus=gpus_per_worker,
    )


class _Actor:
    """The actor: made, and its model loaded, on the worker."""

    def __init__(self, embed: EmbedBatch) -> None:
        self._embed = embed

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self._embed(batch)
