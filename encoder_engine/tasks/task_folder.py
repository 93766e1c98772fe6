"""Reads and writes ``task.json`` beside a trained model.

It holds the task, how long texts are read, and the format of tables.
Also reads the rows of files that a task is trained on or predicts.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.files import recorded_checksums, write_atomically, write_checksums
from encoder_engine.inputs.tables import read_table
from encoder_engine.json_values import JsonValue, read_value
from encoder_engine.tasks.registry import read_task, task_values
from encoder_engine.tasks.task import Task, Windows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from encoder_engine.inputs.records import Record

__all__ = ["TASK", "SavedTask", "TableFormat", "load_task", "read_records", "save_task"]

TASK, FORMAT = "task.json", 1


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The format of the .csv and .tsv files that a task was trained on.

    ``header``: the columns of files without a header; empty: files have one.
    ``quoting``: False: quotation marks are plain characters, as in GLUE.
    """

    header: tuple[str, ...] = ()
    quoting: bool = True

    def replaced(self, header: Sequence[str] | None, quoting: bool | None) -> TableFormat:
        """Return the format with another header or quoting; None keeps the present value."""
        return TableFormat(
            header=self.header if header is None else tuple(header),
            quoting=self.quoting if quoting is None else quoting,
        )


def read_records(
    task: Task[Any, Any], files: Sequence[str], tables: TableFormat, *, settable: bool = False
) -> Iterator[Record]:
    """Yield the rows of files, in the task's own format (such as CoNLL) or as a table.

    settable: an error about a missing column names the task's setting that can name another.
    """
    settings = task_values(task) if settable else {}
    keywords = {
        value: f"the setting task.{name}, or rename it"
        for name, value in settings.items()
        if isinstance(value, str)
    }
    for file in files:
        own = task.records(file)
        if own is not None:
            yield from own
        else:
            yield from read_table(
                file, header=tables.header, quoting=tables.quoting, keywords=keywords
            )


class SavedTask(NamedTuple):
    """A task with its fitted settings, how it reads long texts, and the table format of training.

    ``base_sha256``: if the model is adapters, a digest of the encoder that they were trained on.
    """

    task: Task[Any, Any]
    windows: Windows
    tables: TableFormat = TableFormat()
    base_sha256: str | None = None


def save_task(directory: str | os.PathLike[str], saved: SavedTask) -> None:
    """Write ``task.json`` into a model's directory, and add it to the directory's checksums."""
    target = Path(directory)
    values = {
        "format": FORMAT,
        "task": task_values(saved.task),
        "windows": asdict(saved.windows),
        "tables": asdict(saved.tables),
    }
    if saved.base_sha256 is not None:
        values["base_sha256"] = saved.base_sha256
    write_atomically(target / TASK, (json.dumps(values, indent=1) + "\n").encode())
    write_checksums(target, sorted({*recorded_checksums(target), TASK}))


def load_task(directory: str | os.PathLike[str]) -> SavedTask:
    """Read ``task.json``. Raises :class:`ConfigError` for a directory without a usable one."""
    path = Path(directory) / TASK
    if not path.is_file():
        raise ConfigError(
            f"{directory} has no {TASK}: it is not a fine-tuned model; name the folder 'model' of "
            "a run of finetune"
        )
    value = read_value(path, ConfigError)
    value.only_keys(["format", "task", "windows", "tables", "base_sha256"])
    value.get("format").integer(least=FORMAT, most=FORMAT)
    tables = value.get("tables").optional(lambda found: found.read_as(TableFormat))
    return SavedTask(
        read_task(value.get("task")),
        value.get("windows").read_as(Windows),
        tables or TableFormat(),
        value.get("base_sha256").optional(JsonValue.string),
    )
