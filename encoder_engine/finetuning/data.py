"""Reads labelled files as the examples of a task, checks the rows, and tokenizes them once."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    ConfigError,
    InputError,
    SuspiciousDataWarning,
    TruncationWarning,
)
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.families.heads import check_ending
from encoder_engine.json_values import nearest
from encoder_engine.opening.modules import read_transformer_config
from encoder_engine.opening.recipe import encoder_directory, read_tokenizer
from encoder_engine.tasks.ranking import RankingTask
from encoder_engine.tasks.sequence_task import SequenceTask
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.task_folder import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from encoder_engine.finetuning.recipe import DataRecipe, FineTuningRecipe
    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Task
    from encoder_engine.tasks.task_folder import TableFormat
    from encoder_engine.text import Tokenizer

__all__ = ["Examples", "TaskData", "prepare_data", "read_scored_rows"]

# The usual maximum, for models that take longer texts than most tasks need.
USUAL_LENGTH = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """The examples that a task made of rows of files, in order, and a digest of the rows."""

    files: tuple[str, ...]
    examples: list[Any]
    sha256: str

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.examples)

    def values(self) -> dict[str, Any]:
        """Return files, number of rows and digest of the rows, as JSON values for ``data.json``."""
        return {"files": list(self.files), "rows": len(self), "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskData:
    """The tokenized data of a fine-tuning run; runs with other seeds share them.

    ``task``: the task, fitted to the checkpoint and the training rows.
    ``checkpoint``: the directory of the checkpoint.
    ``directory``: the folder of the checkpoint's encoder, which may be inside a
    sentence-transformers directory.
    ``notes``: warnings about rows that make scores unreliable or are missing.
    """

    task: Task[Any, Any]
    checkpoint: Path
    directory: Path
    tokenizer: Tokenizer
    windows: Windows
    train: Examples
    dev: Examples | None
    train_items: Items
    dev_items: Items | None
    notes: tuple[str, ...]

    def warn(self) -> None:
        """Issue the warnings about rows that are unreliable, missing or truncated."""
        for note in self.notes:
            warnings.warn(SuspiciousDataWarning(note), stacklevel=2)
        for name, items in (("training", self.train_items), ("dev", self.dev_items)):
            if items is not None and items.num_truncated:
                warnings.warn(
                    TruncationWarning(
                        f"{items.num_truncated} {name} texts were cut to "
                        f"{self.windows.max_length} tokens; leave out data.truncate to read them "
                        "in windows",
                        num_truncated=items.num_truncated,
                    ),
                    stacklevel=2,
                )


def prepare_data(recipe: FineTuningRecipe) -> TaskData:
    """Read and check the labelled files of a recipe, fit the task to them, and tokenize them.

    Raises :class:`RowError` for a row that cannot be used, :class:`InputError` for rows from which
    nothing can be learned, and :class:`ConfigError` for settings that do not fit the checkpoint,
    and for a metric by which the dev rows cannot be scored.
    """
    data = recipe.data
    if not recipe.model.checkpoint:
        raise ConfigError("model.checkpoint is not set; name a directory or hub id")
    if not data.train:
        raise ConfigError("data.train is not set; name the file of the training rows")
    checkpoint = resolve_directory(recipe.model.checkpoint)
    directory = encoder_directory(checkpoint)
    config = read_config(directory)
    spec = spec_from_config(config)
    windows = _windows(data, spec.max_length)
    task = recipe.task.of_checkpoint(checkpoint)
    train = _read_training_rows(task, data)
    task = task.fit(train.examples)
    dev = None
    if data.dev:
        metric = recipe.selection.metric or task.main_score
        dev = read_scored_rows(task, data.dev, data.tables, every=data.dev_every, metric=metric)
    lowercase = read_transformer_config(directory).lowercase
    tokenizer = task.own_tokenizer(read_tokenizer(directory, lowercase=lowercase))
    tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
    if isinstance(task, SequenceTask | RankingTask):
        check_ending(config, tokenizer.encode("").tolist())
    return TaskData(
        task=task,
        checkpoint=checkpoint,
        directory=directory,
        tokenizer=tokenizer,
        windows=windows,
        train=train,
        dev=dev,
        train_items=_encode(task, "train", train.examples, tokenizer, windows),
        dev_items=None if dev is None else _encode(task, "dev", dev.examples, tokenizer, windows),
        notes=tuple(_notes(task, train, dev)),
    )


def _encode(
    task: Task[Any, Any], name: str, examples: Any, tokenizer: Tokenizer, windows: Windows
) -> Items:
    try:
        return task.encode(examples, tokenizer, windows)
    except InputError as error:
        if error.row is None:
            raise
        raise InputError(f"of the rows of data.{name}, from 0: {error}", row=error.row) from None


def _read_training_rows(task: Task[Any, Any], data: DataRecipe) -> Examples:
    """Read the training rows as a task's examples; refuse rows that a model cannot learn from."""
    records = islice(
        read_records(task, data.train, data.tables, settable=True), 0, None, data.train_every
    )

    def read(record: Record) -> Any:
        example = task.read(record)
        reason = task.unlabelled(example)
        if reason is not None:
            _refuse(record, reason)
        return example

    return _collect(data.train, ((record, read(record)) for record in records))


def read_scored_rows(
    task: Task[Any, Any],
    files: Sequence[str],
    tables: TableFormat,
    *,
    every: int = 1,
    metric: str | None = None,
) -> Examples:
    """Read labelled rows as the examples on which a fitted task's predictions are scored.

    ``every``: take each k-th row, from the first.
    ``metric``: a score that the rows must support; None: any score.

    Raises :class:`RowError` for a row that cannot be scored, :class:`InputError` for files without
    a row, and :class:`ConfigError` for a metric that is none of the scores of these rows.
    """
    places: list[Record] = []
    columns: dict[tuple[str, ...], dict[str, Any]] = {}

    def read(record: Record) -> Any:
        # Kept without their values; most rows share one set of columns.
        names = tuple(record.values)
        places.append(record._replace(values=columns.setdefault(names, dict.fromkeys(names))))
        return task.read(record)

    records = islice(read_records(task, files, tables), 0, None, every)
    rows = _collect(files, ((record, read(record)) for record in records))
    unscored = task.unscored(rows.examples, metric)
    if unscored is not None:
        place, reason = unscored
        _refuse(places[place], reason)
    names = task.score_names(rows.examples)
    if metric is not None and metric not in names:
        raise ConfigError(
            f"{', '.join(files)}: the metric {metric!r}, which selects the best checkpoint, is "
            f"none of the rows' scores{nearest(metric, names)}; set task.metric or "
            f"selection.metric to {', '.join(names[:-1])} or {names[-1]}"
        )
    return rows


def _collect(files: Sequence[str], rows: Iterable[tuple[Record, Any]]) -> Examples:
    digest, examples = hashlib.sha256(), []
    for record, example in rows:
        values = json.dumps(record.values, sort_keys=True, default=str)
        digest.update(values.encode("utf-8", "surrogatepass") + b"\n")
        examples.append(example)
    if not examples:
        raise InputError(f"{', '.join(files)}: there is no row; name a file of labelled rows")
    return Examples(files=tuple(files), examples=examples, sha256=digest.hexdigest())


def _refuse(record: Record, reason: str) -> NoReturn:
    record.refuse(f"{reason} (the row has {', '.join(map(str, record.values))})")


def _windows(data: DataRecipe, longest: int | None) -> Windows:
    if data.max_length is not None and longest is not None and data.max_length > longest:
        raise ConfigError(
            f"data.max_length is {data.max_length}, the model takes {longest} tokens; lower it, "
            "longer texts are read in windows"
        )
    usual = USUAL_LENGTH if longest is None else min(USUAL_LENGTH, longest)
    return Windows(max_length=data.max_length or usual, truncate=data.truncate, stride=data.stride)


def _notes(task: Task[Any, Any], train: Examples, dev: Examples | None) -> Iterator[str]:
    golds: defaultdict[object, set[object]] = defaultdict(set)
    for example in train.examples:
        golds[task.key(example)].add(task.gold_key(example))
    contradicting = sum(len(found) > 1 for found in golds.values())
    if contradicting:
        yield (
            f"{contradicting} texts of the training rows occur with different labels: no model can "
            "be right about all of them"
        )
    if dev is None:
        yield (
            "there are no dev rows: nothing is scored, no checkpoint is selected, the last one is "
            "exported"
        )
        return
    repeated = sum(task.key(example) in golds for example in dev.examples)
    if repeated:
        yield (
            f"{repeated} of {len(dev)} dev rows are in the training rows too: their scores say "
            "nothing of unseen text"
        )
