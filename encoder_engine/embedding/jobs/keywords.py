"""Keywords of jobs over files that every model takes, and the running of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from encoder_engine.embedding.options import EncodeKeywords
from encoder_engine.json_values import nearest

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from encoder_engine.embedding.dataset.job import OnError
    from encoder_engine.embedding.dataset.model import JobModel
    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.inputs.opening import Format
    from encoder_engine.vectors.columns import Kind
    from encoder_engine.vectors.manifest import ShardFormat

__all__ = ["DatasetKeywords", "JobKeywords", "run_over_files"]


class JobKeywords(TypedDict, total=False):
    """The keywords of a job; see :meth:`Embedder.encode_dataset`."""

    column: str | None
    id_column: str | None
    input_format: Format | None
    on_error: OnError
    max_characters: int | None
    unique_ids: bool
    shard_rows: int | None
    shard_format: ShardFormat | None
    keep: Sequence[str]
    append: bool
    delete_missing: bool
    overwrite: bool
    workers: int
    staging: str | os.PathLike[str] | None


class DatasetKeywords(EncodeKeywords, JobKeywords, total=False):
    """The keywords of :meth:`Embedder.encode_dataset`."""


def run_over_files(
    model: JobModel,
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    task: Kind,
    call: Any,
    job: JobKeywords,
    pair_column: str | None = None,
) -> DatasetSummary:
    """Run a model over files; see :meth:`Embedder.encode_dataset`.

    call: the options of the model's call. Raises ``TypeError`` for an unknown keyword.
    """
    # Readers, stores and processes: a model without them is imported in half the time.
    from encoder_engine.embedding.dataset.job import DatasetOptions, open_job
    from encoder_engine.embedding.dataset.run import run_job

    for name in job:
        if name not in JobKeywords.__annotations__:
            raise TypeError(
                f"unexpected keyword argument {name!r}{nearest(name, JobKeywords.__annotations__)}"
            )
    options = DatasetOptions(encode=call, task=task, pair_column=pair_column, **job)
    return run_job(open_job(inputs, output, options), model)
