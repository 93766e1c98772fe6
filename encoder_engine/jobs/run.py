"""Runs a job: reads rows in windows, computes their results and writes them; stages overlap."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import EncoderEngineError, OutputError, RowError
from encoder_engine.inputs.remote import upload_folder
from encoder_engine.jobs.folder import ShardFolder
from encoder_engine.jobs.growing_folder import GrowingFolder, is_finished
from encoder_engine.jobs.job import DEFAULT_SHARD_ROWS
from encoder_engine.jobs.outputs import SingleFile, SkippedRows
from encoder_engine.jobs.pipeline import BackgroundWriter, ahead
from encoder_engine.jobs.plan import make_plan
from encoder_engine.jobs.windows import WindowSize, shard_windows
from encoder_engine.jobs.workers import LocalEmbedder, WorkerPool
from encoder_engine.kinds.options import document_prompt
from encoder_engine.vectors.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.jobs.outputs import Output
    from encoder_engine.jobs.windows import TextWindow
    from encoder_engine.jobs.workers import WindowEmbedder
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.windows import EmbeddedWindow

    Watch = Callable[["DatasetSummary", int], None]


class RunInterrupted(KeyboardInterrupt):
    """Raised on the interrupt key; the message says what is kept and how to resume."""


STAGES = ("load", "read", "tokenize", "encode", "write")


@dataclass(kw_only=True)
class DatasetSummary:
    """The counts and times of a run.

    rows, truncated_rows: the numbers for the whole output.
    resumed_rows: the number of rows that earlier runs had written.
    tokens: the number of tokens that this run embedded.
    padded_tokens: the number of tokens that the same batches would have had with padding.
    skipped_rows: bad rows, listed in the file ``skipped``.
    recognised: the formats of inputs whose names do not state them.
    growth: for a run that appended, the generation, and the counts of added, replaced and dropped
        rows.
    seconds: wall time of each stage, summed over workers, and of the whole run; stages overlap, so
        their sum may exceed the whole.
    """

    output: str
    model: str
    rows: int = 0
    resumed_rows: int = 0
    skipped_rows: int = 0
    skipped: str | None = None
    recognised: dict[str, str] = field(default_factory=dict)
    growth: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    padded_tokens: int = 0
    truncated_rows: int = 0
    max_seq_length: int | None = None
    dimension: int = 0
    dtype: str = ""
    workers: int = 1
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    @property
    def padding_saved(self) -> float:
        """The share, 0 to 1, of padded batches' tokens that would have been padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return all fields and the rates per second, which exclude loading the model."""
        working = self.seconds["total"] - self.seconds["load"]
        seconds = {stage: round(spent, 6) for stage, spent in self.seconds.items()}
        rates = {
            "padding_saved": round(self.padding_saved, 4),
            "rows_per_second": round((self.rows - self.resumed_rows) / working, 3),
            "tokens_per_second": round(self.tokens / working, 3),
        }
        return {**asdict(self), "seconds": seconds, **rates}


def run_job(
    job: DatasetJob, kind: Kind, *, load_seconds: float = 0.0, watch: Watch | None = None
) -> DatasetSummary:
    """Compute the results of all rows of a job, and write them.

    ``load_seconds``: the time that loading the model took, for the summary. ``watch``: called after
    each window with the summary and the bytes read. Raises :class:`RunInterrupted` on the interrupt
    key; other exceptions: see :meth:`Embedder.encode_dataset`.
    """
    start = time.perf_counter()
    model, call = kind.model, _call_for(job, kind)
    options = kind.resolve(**call)
    summary = DatasetSummary(
        output=str(job.output),
        model=model.name,
        max_seq_length=kind.limit(options),
        dimension=kind.stored_dimension(options),
        dtype=model.engine.dtype,
        workers=job.options.workers,
        recognised=job.inputs.recognised,
    )
    summary.seconds["load"] = load_seconds
    embedder: WindowEmbedder
    if job.options.workers > 1:
        embedder = WorkerPool(kind, call, job.options.workers)
    else:
        on_cpu = model.engine.device == "cpu"
        embedder = LocalEmbedder(kind, call, overlapped=job.inputs.regular and not on_cpu)
    output = _make_output(job, kind, options)
    try:
        with output:
            _write_all(job, embedder, output, summary, watch)
    except KeyboardInterrupt as error:
        raise RunInterrupted(f"stopped; {kept_rows(job, output)}") from error
    except OutputError:
        raise
    except EncoderEngineError as error:
        # The error keeps its type, by which callers know it; its message also says how to go on.
        notes = _ways_on(job, output, error, any_done=summary.rows > 0)
        error.args = ("; ".join([str(error), *notes]), *error.args[1:])
        raise
    if job.address is not None:
        start_upload = time.perf_counter()
        upload_folder(job.output, job.address, MANIFEST_NAME)
        summary.output = job.address
        summary.seconds["write"] += time.perf_counter() - start_upload
    if isinstance(output, GrowingFolder):
        summary.growth = output.growth
        summary.resumed_rows += output.num_rows - summary.rows
        summary.rows = output.num_rows
    if output.num_truncated_rows is not None:
        summary.truncated_rows = output.num_truncated_rows
    summary.seconds["total"] = load_seconds + time.perf_counter() - start
    return summary


def _call_for(job: DatasetJob, kind: Kind) -> dict[str, Any]:
    """Return the options with which a job calls the model, for documents.

    Without a prompt, that of ``encode_document`` applies; where its text is empty, the model's
    default prompt.
    """
    call, prompts = dict(job.options.encode), kind.model.prompts
    has_prompt = call.get("prompt") is not None or call.get("prompt_name") is not None
    name = document_prompt(prompts)
    if not has_prompt and job.options.task in ("dense", "sparse") and name and prompts[name]:
        call["prompt_name"] = name
    if kind.has_routes:
        call["route"] = "document"
    return call


def kept_rows(job: DatasetJob, output: Output) -> str:
    """Describe which rows of a stopped run are kept, and how to resume."""
    if not job.sharded:
        return (
            f"nothing is kept: {job.output} appears only when it is whole; a folder as the output "
            "(-o FOLDER/) keeps what is done"
        )
    if not output.num_kept_rows:
        return "no row was finished yet; the same command begins again"
    return (
        f"{output.num_kept_rows:,} rows are kept in {job.output}; run the same command to go on "
        "after them"
    )


def _ways_on(
    job: DatasetJob, output: Output, error: EncoderEngineError, *, any_done: bool
) -> list[str]:
    """Return sentences on how to resume a failed run, to add to its error."""
    notes = []
    if isinstance(error, RowError) and job.options.on_error == "fail":
        notes.append("or leave bad rows out with on_error='skip'")
    if output.num_kept_rows or (any_done and not job.sharded):
        notes.append(kept_rows(job, output))
    return notes


def _make_output(job: DatasetJob, kind: Kind, options: Any) -> Output:
    if not job.sharded:
        return SingleFile(job)
    folder = GrowingFolder if job.options.append and is_finished(job.output) else ShardFolder
    return folder(job, make_plan(kind, job, options), kind.model.name)


def _write_all(
    job: DatasetJob,
    embedder: WindowEmbedder,
    output: Output,
    summary: DatasetSummary,
    watch: Watch | None,
) -> None:
    skipped = SkippedRows(output.skipped_path)
    inputs = job.inputs.skipping(skipped) if job.options.on_error == "skip" else job.inputs
    elastic = job.sharded and output.shard_rows is None
    # On a GPU and in bfloat16, bits depend on the batch, and so on the windows: windows of shards
    # of a fixed size do not follow the wall time. Nor do those of one table, whose bytes show them.
    one_array = not job.sharded and job.output.suffix == ".npy"
    size = WindowSize(timed=elastic or one_array)
    rows = shard_windows(
        output.select(iter(inputs)),
        DEFAULT_SHARD_ROWS if elastic else output.shard_rows,
        recorded=output.recorded_rows,
        size=size,
    )
    cut = _timed(rows, summary.seconds)

    def write(window: TextWindow, embedded: EmbeddedWindow | None) -> None:
        start = time.perf_counter()
        output.add(window, embedded)
        summary.seconds["write"] += time.perf_counter() - start

    try:
        with ExitStack() as stack:
            writer = stack.enter_context(BackgroundWriter())
            # Standard input and pipes could block the prefetching thread for ever.
            drawn = stack.enter_context(closing(ahead(cut))) if inputs.regular else cut
            windows = stack.enter_context(closing(embedder.embed(drawn, output.done)))
            for window, embedded in windows:
                _count(summary, len(window.texts), embedded)
                if embedded is not None:
                    seconds = embedded.tokenize_seconds + embedded.encode_seconds
                    size.observe(len(window.texts), seconds)
                writer(write, window, embedded)
                if watch is not None:
                    watch(summary, inputs.meter.num_bytes)
            writer.wait()
        start = time.perf_counter()
        output.complete(skipped)
        summary.seconds["write"] += time.perf_counter() - start
    finally:
        skipped.discard()
    summary.skipped_rows = skipped.num_rows
    summary.skipped = str(job.skipped_path) if skipped.num_rows else None


def _timed(windows: Iterator[TextWindow], seconds: dict[str, float]) -> Iterator[TextWindow]:
    """Yield the windows, and add the seconds spent waiting for them to ``seconds["read"]``."""
    while True:
        start = time.perf_counter()
        window = next(windows, None)
        seconds["read"] += time.perf_counter() - start
        if window is None:
            return
        yield window


def _count(summary: DatasetSummary, num_rows: int, embedded: EmbeddedWindow | None) -> None:
    summary.rows += num_rows
    if embedded is None:
        summary.resumed_rows += num_rows
        return
    summary.tokens += embedded.num_tokens
    summary.padded_tokens += embedded.num_padded_tokens
    summary.truncated_rows += embedded.num_truncated
    summary.seconds["tokenize"] += embedded.tokenize_seconds
    summary.seconds["encode"] += embedded.encode_seconds
