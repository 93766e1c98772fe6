"""Daft: adds a column of vectors or predictions, by worker processes with a model each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.integrations.ray import check_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.embedding.embed_batch import EmbedBatch
    from encoder_engine.prediction.any_predictor import PredictBatch

__all__ = ["embed_column", "predict_column"]

# Daft's types of the precisions.
_NUMBERS = {
    "float32": "float32",
    "int8": "int8",
    "uint8": "uint8",
    "binary": "int8",
    "ubinary": "uint8",
}


def embed_column(
    column: Any,
    embed: EmbedBatch,
    *,
    num_workers: int,
    batch_rows: int = 4096,
    gpus_per_worker: int = 0,
) -> Any:
    """Return a Daft expression: the vectors of a column of texts, in arrays of a fixed size.

    ``num_workers``: processes, each with its own copy of the model.
    ``batch_rows``: the most rows of a batch.
    ``gpus_per_worker``: GPUs that Daft reserves for each process.
    The vectors are the same as in a single process. Raises :class:`InputError` where workers on Ray
    need more than the cluster has, for which they would wait without end.
    """
    daft = _checked_daft(num_workers, batch_rows, gpus_per_worker)
    number = getattr(daft.DataType, _NUMBERS[embed.precision])()
    dtype = daft.DataType.fixed_size_list(number, embed.dimension)
    limits = {"max_concurrency": num_workers, "gpus": gpus_per_worker}
    return _column(column, embed, _vectors, dtype, batch_rows, **limits)


def predict_column(
    column: Any,
    predict: PredictBatch,
    *,
    num_workers: int,
    batch_rows: int = 4096,
    gpus_per_worker: int = 0,
) -> Any:
    """Return a Daft expression: a struct with each text's predictions, such as label and score.

    Options and exceptions: see :func:`embed_column`. Raises :class:`InputError` too for a task on
    pairs of texts, because a column has no second texts.
    """
    if predict.pair_column is not None:
        raise InputError("a column of texts has no second texts; leave pair_column out")
    daft = _checked_daft(num_workers, batch_rows, gpus_per_worker)
    dtype = _struct(daft.DataType, predict.types)
    limits = {"max_concurrency": num_workers, "gpus": gpus_per_worker}
    return _column(column, predict, _structs, dtype, batch_rows, **limits)


def _column(
    column: Any, step: Any, take: Callable[..., Any], dtype: Any, batch_rows: int, **limits: Any
) -> Any:
    import daft

    @daft.cls(use_process=True, **limits)
    class Worker:
        def __init__(self, step: Any) -> None:
            self._step = step

        @daft.method.batch(return_dtype=dtype, batch_size=batch_rows)  # type: ignore[untyped-decorator]
        def results(self, texts: Any) -> Any:
            return take(self._step, self._step({self._step.text_column: texts.to_pylist()}))

    return Worker(step).results(column)


def _vectors(embed: EmbedBatch, batch: dict[str, Any]) -> Any:
    return batch[embed.vector_column]


def _structs(predict: PredictBatch, batch: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(predict.types)
    rows = zip(*(list(batch[name]) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _struct(kinds: Any, types: Mapping[str, Any]) -> Any:
    """Return Daft's struct type for columns of predictions; see :class:`PredictedRows`."""
    known = {"double": kinds.float64(), "int64": kinds.int64(), "string": kinds.string()}
    known |= {f"list<{name}>": kinds.list(kind) for name, kind in known.items()}
    return kinds.struct(
        {
            name: known[kind] if isinstance(kind, str) else kinds.list(_struct(kinds, kind))
            for name, kind in types.items()
        }
    )


def _checked_daft(num_workers: int, batch_rows: int, gpus_per_worker: int) -> Any:
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
    return daft
