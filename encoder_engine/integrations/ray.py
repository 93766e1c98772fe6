"""Ray Data: adds columns to a dataset, computed by actors that load the model once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from encoder_engine.embedding.embed_batch import BatchStep

__all__ = ["check_cluster", "embed_dataset", "predict_dataset"]


def embed_dataset(
    dataset: Any,
    embed: BatchStep,
    *,
    num_workers: int,
    batch_rows: int = 4096,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
) -> Any:
    """Return a ``ray.data.Dataset`` with an added column of vectors, computed lazily.

    ``embed``: an :class:`EmbedBatch`.
    ``num_workers``: actors, each with its own copy of the model.
    ``batch_rows``: rows of a batch.
    ``cpus_per_worker``: cores that Ray reserves for each actor; leave at least one for reading.
    ``gpus_per_worker``: GPUs that Ray reserves for each actor.
    The vectors are the same as in a single process. Raises :class:`InputError` where the actors and
    a core for reading need more than the cluster has, for which Ray would wait without end.
    """
    try:
        import ray.data
    except ImportError:
        raise MissingDependencyError("Ray Data", library="ray[data]", extra="ray") from None
    if num_workers < 1 or batch_rows < 1:
        raise InputError(
            f"num_workers and batch_rows must be at least 1, got {num_workers} and {batch_rows}"
        )
    check_cluster(
        ray, num_workers, cpus_per_worker=cpus_per_worker, gpus_per_worker=gpus_per_worker
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


def predict_dataset(dataset: Any, predict: BatchStep, *, num_workers: int, **options: Any) -> Any:
    """Return a dataset with added columns of predictions, those of a :class:`PredictBatch`.

    Options and exceptions: see :func:`embed_dataset`.
    """
    return embed_dataset(dataset, predict, num_workers=num_workers, **options)


def check_cluster(
    ray: Any, num_workers: int, *, cpus_per_worker: float | None = None, gpus_per_worker: float
) -> None:
    """Raise :class:`InputError` if workers need more than the cluster has or may grow to.

    ``cpus_per_worker``: cores per worker, besides one core for reading; None: one core each, and
    none for reading.
    """
    if not ray.is_initialized():
        ray.init()
    try:  # no public function says what an autoscaled cluster may grow to
        most: Any = ray._private.state.state.get_max_resources_from_cluster_config()
    except AttributeError:
        most = None
    there = ray.cluster_resources() if most is None else most
    cpus, reading = (1.0, 0) if cpus_per_worker is None else (cpus_per_worker, 1)
    for name, each, other in (("CPU", cpus, reading), ("GPU", gpus_per_worker, 0)):
        needed, found = num_workers * each + other, there.get(name, 0)
        if needed > found:
            left = max(found - other, 0)
            mends = [f"num_workers={int(left // each)}"] if left >= each > 0 else []
            if name == "GPU" or (left and cpus_per_worker is not None):
                mends.append(f"{name.lower()}s_per_worker={left / num_workers:g}")
            mend = f"pass {', or '.join(mends)}" if mends else "add nodes"
            raise InputError(
                f"{num_workers} workers of {each:g} {name}s{' and 1 for reading' * other} need "
                f"{needed:g}, the cluster has {found:g}, and Ray would wait for the others without "
                f"end: {mend}"
            )


class _Actor:
    """A Ray actor that adds columns to batches; the worker that it runs on loads the model."""

    def __init__(self, step: BatchStep) -> None:
        self._step = step

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return self._step(batch)
