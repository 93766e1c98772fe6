"""The keyword arguments of jobs over files, and the function that runs a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from encoder_engine.inputs.opening import Format
    from encoder_engine.jobs.job import OnError
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.vectors.manifest import ShardFormat

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

__all__ = ["JobKeywords", "run_over_files"]


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
    on_truncation: Literal["ignore", "error"]


def run_over_files(
    kind: Kind,
    inputs: Paths,
    output: str | os.PathLike[str],
    keywords: Mapping[str, Any],
    *,
    pair_column: str | None = None,
) -> DatasetSummary:
    """Compute results, such as vectors or scores, of all rows of files, and write them.

    kind: computes the results.
    keywords: those of the job (:class:`JobKeywords`) and of the model's ``encode`` or ``score``.
    pair_column: the column of the second text of each pair; None: rows are single texts.

    For inputs, output and the result see :meth:`Embedder.encode_dataset`.
    """
    # Imported here: without readers, stores and processes a model is imported in half the time.
    from encoder_engine.jobs.job import DatasetOptions, open_job
    from encoder_engine.jobs.run import run_job

    job = {name: value for name, value in keywords.items() if name in JobKeywords.__annotations__}
    call = {name: value for name, value in keywords.items() if name not in job}
    call["on_truncation"] = job.pop("on_truncation", "ignore")
    options: Any = {"encode": call, "task": kind.name, "pair_column": pair_column, **job}
    return run_job(open_job(inputs, output, DatasetOptions(**options)), kind)
