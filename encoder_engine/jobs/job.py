"""The inputs, output and options of a run over files, checked before a model is loaded."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, OutputError
from encoder_engine.inputs.opening import STANDARD_INPUT
from encoder_engine.inputs.readers import Inputs, open_inputs
from encoder_engine.inputs.remote import is_remote
from encoder_engine.vectors.columns import KINDS
from encoder_engine.vectors.manifest import SHARD_FORMATS, SKIPPED_NAME
from encoder_engine.vectors.store import ENDINGS, check_columns, check_output, ids_path
from encoder_engine.vectors.store_files import damage, map_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.inputs.opening import Format
    from encoder_engine.vectors.columns import Kind
    from encoder_engine.vectors.manifest import ShardFormat

OnError = Literal["fail", "skip"]
# A full shard of 384 features in float32 has 150 MB.
DEFAULT_SHARD_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """The options of ``Embedder.encode_dataset``; see there.

    encode: the keyword arguments of ``encode``, or of the method that computes the results.
    task: the results to compute: ``"dense"``, ``"sparse"``, ``"tokens"``, ``"scores"``, ...
    pair_column: the column of the second texts, for scores of pairs.
    keep: columns of the inputs that are written beside the results.
    append: embed the rows that are new or have changed since a folder was finished.
    delete_missing: with ``append``, drop the rows that the inputs no longer contain.
    staging: the local folder of a run whose output is an address.
    """

    column: str | None = None
    id_column: str | None = None
    input_format: Format | None = None
    on_error: OnError = "fail"
    max_characters: int | None = None
    unique_ids: bool = False
    shard_rows: int | None = None
    shard_format: ShardFormat | None = None
    overwrite: bool = False
    workers: int = 1
    encode: dict[str, Any] = field(default_factory=dict)
    task: Kind = "dense"
    pair_column: str | None = None
    keep: Sequence[str] = ()
    append: bool = False
    delete_missing: bool = False
    staging: str | os.PathLike[str] | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetJob:
    """A run to be made: inputs that exist, and an output that can be written.

    ``sharded``: the output is a folder; else a file.
    ``address``: the address to which the finished folder is copied, if any.
    """

    inputs: Inputs
    output: Path
    sharded: bool
    options: DatasetOptions
    address: str | None = None

    @property
    def shard_rows(self) -> int | None:
        """The fixed number of rows of a shard; None: it varies, or there are no shards."""
        return self.options.shard_rows if self.sharded else None

    @property
    def shard_format(self) -> ShardFormat:
        """The file format of the shards, which is the suffix of their names."""
        # Rows of different lengths make no array, and an array has no further columns.
        in_table = self.options.task in ("sparse", "tokens", "predictions") or self.options.keep
        default: ShardFormat = "parquet" if in_table else "npy"
        return self.options.shard_format or default

    @property
    def skipped_path(self) -> Path:
        """The path of the file that lists skipped rows."""
        if self.sharded:
            return self.output / SKIPPED_NAME
        return self.output.with_suffix(".skipped.jsonl")


def open_job(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: DatasetOptions,
) -> DatasetJob:
    """Check inputs, output and options, without reading or writing any row.

    Raises :class:`InputError` for options, :class:`ReadError` for inputs and :class:`OutputError`
    for the output.
    """
    _check_counts(options)
    if options.append and options.overwrite:
        raise InputError("give append=True or overwrite=True, not both")
    if options.delete_missing and not options.append:
        raise InputError("delete_missing=True needs append=True")
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    opened = open_inputs(
        [os.fspath(name) for name in names],
        column=options.column,
        id_column=options.id_column,
        pair_column=options.pair_column,
        format=options.input_format,
        max_characters=options.max_characters,
        keep=options.keep,
        # A row of a repeated id would replace itself.
        unique_ids=options.unique_ids or (options.append and options.id_column is not None),
    )
    target = os.fspath(output)
    address = target if is_remote(target) else None
    if (address is None) != (options.staging is None):
        raise InputError(
            "staging= is the local folder of a run whose output is an address, where "
            f"it resumes; the output is {target}"
        )
    if options.staging is not None:
        target = f"{os.fspath(options.staging).rstrip('/')}/"
    try:
        return replace(_with_output(opened, target, options), address=address)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{output} cannot be looked up: {error.strerror}") from error


def _with_output(opened: Inputs, target: str, options: DatasetOptions) -> DatasetJob:
    """Make the job; choose file or folder as its output, and check that it can be written."""
    sharded = (
        target.endswith(("/", os.sep))
        or not Path(target).suffix
        or Path(target).is_dir()
        or options.shard_rows is not None
        or options.shard_format is not None
    )
    job = DatasetJob(inputs=opened, output=Path(target), sharded=sharded, options=options)
    files = [Path(name) for name, _ in opened.sources if name != STANDARD_INPUT]
    if options.append and not sharded:
        raise InputError(
            f"append=True adds to a folder of shards, and {target} is a file; name a "
            f"folder: {Path(target).with_suffix('')}/"
        )
    if sharded:
        _check_folder(job, files)
    else:
        check_output(
            job.output,
            id_column=options.id_column,
            overwrite=options.overwrite,
            beside=[job.skipped_path],
            inputs=files,
            kind=options.task,
            keep=options.keep,
        )
        _refuse_others_beside(job)
    return job


def _refuse_others_beside(job: DatasetJob) -> None:
    """Raise :class:`OutputError` for files beside the output file that no earlier run wrote.

    A run replaces or removes a list of skipped rows and the ids of former vectors, so a foreign
    file of such a name would be lost.
    """
    listed, ids = job.skipped_path, ids_path(job.output)
    if listed.exists() and not is_list_of_skipped(listed):
        raise OutputError(
            f"{listed} is not a list of skipped rows, and this run would remove it; move the file "
            "away, or choose another name"
        )
    if job.output.suffix == ".npy" and (ids.exists() or ids.is_symlink()):
        _refuse_ids_of_others(job.output, ids)


def _refuse_ids_of_others(output: Path, ids: Path) -> None:
    if not output.exists():
        if _cut_off_at_its_end(output):
            return
        raise OutputError(
            f"{ids} exists without {output}, so the vectors of its ids are unknown, and this run "
            "would remove it; move the file away, or choose another name"
        )
    try:
        with damage(output):
            num_rows = len(map_array(output))
        with damage(ids), ids.open("rb") as file:
            num_ids = sum(1 for _ in file)
    except InputError as error:
        raise OutputError(
            f"{ids} would be removed, but whether it has the ids of {output} cannot be checked "
            f"({error}); move the file away, or choose another name"
        ) from error
    if num_ids != num_rows:
        raise OutputError(
            f"{ids} has {num_ids} lines and {output} has {num_rows} rows, so the ids do not belong "
            "to these vectors, and this run would remove them; move the file away, or choose "
            "another name"
        )


def _cut_off_at_its_end(output: Path) -> bool:
    """Return whether an earlier run was killed between completing its vectors and renaming them.

    Such a run had removed the vectors of an earlier run, and leaves a file of ids, former or new.
    """
    name = re.compile(rf"_?{re.escape(output.name)}\.[0-9a-f]{{8}}\.partial")
    for path in output.absolute().parent.iterdir():
        if name.fullmatch(path.name) and path.is_file():
            # Vectors that are not whole have no header yet.
            with contextlib.suppress(InputError), damage(path):
                return len(map_array(path)) > 0
    return False


def _check_counts(options: DatasetOptions) -> None:
    for name in ("max_characters", "shard_rows", "workers"):
        value = getattr(options, name)
        if value is None and name != "workers":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    for name, value, known in (
        ("on_error", options.on_error, get_args(OnError)),
        ("shard_format", options.shard_format, (None, *SHARD_FORMATS)),
        ("task", options.task, KINDS),
    ):
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(map(str, known))}, got {value!r}")


def _check_folder(job: DatasetJob, files: list[Path]) -> None:
    folder = job.output
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder for the shards")
    if folder.suffix in ENDINGS:
        raise OutputError(f"{folder} names a file; name a folder for the shards, such as vectors/")
    if not folder.exists() and not folder.absolute().parent.is_dir():
        raise OutputError(f"{folder.parent} is not a directory; make it first")
    place = folder if folder.is_dir() else folder.absolute().parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(f"{place} is not writable; choose another place")
    if folder.is_dir() and any(file.absolute().is_relative_to(folder.absolute()) for file in files):
        raise OutputError(f"{folder} holds inputs; name another folder for the shards")
    check_columns(f".{job.shard_format}", job.options.id_column, job.options.task, job.options.keep)


def is_list_of_skipped(path: Path) -> bool:
    """Return whether every line of a file is an entry of a list of skipped rows."""
    try:
        with path.open(encoding="ascii") as lines:
            return all(set(json.loads(line)) == {"file", "number", "reason"} for line in lines)
    except (OSError, ValueError, TypeError):
        return False
