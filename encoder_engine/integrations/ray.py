"""Ray Data: a column of vectors for a dataset, by actors that load the model once each."""

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
    """Return a ``ray.data.Dataset`` with the column of vectors that ``embed`` makes.

    ``num_workers`` actors, each with its own copy of the model, take batches of ``batch_rows``
    rows; the vectors are those of a single process. Nothing runs until the result is consumed.
    Each actor keeps ``cpus_per_worker`` to itself: leave Ray at least one more, or nobody reads.
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
    """What an actor holds: it is made on the worker, and so is what it loads."""

    def __init__(self, embed: EmbedBatch) -> None:
        self._embed = embed

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self._embed(batch)
