"""Finds tasks by name, and converts their settings to and from JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ConfigError, UnknownNameError
from encoder_engine.json_values import JsonSource, JsonValue, nearest
from encoder_engine.tasks.embedders.embedding import EmbeddingTask
from encoder_engine.tasks.embedders.late_interaction import LateInteractionTask
from encoder_engine.tasks.embedders.sparse import SparseTask
from encoder_engine.tasks.multiple_choice import MultipleChoiceTask
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from encoder_engine.tasks.ranking import RankingTask
from encoder_engine.tasks.regression import RegressionTask
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.tasks.span_classification import SpanClassificationTask
from encoder_engine.tasks.token_classification import TokenClassificationTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.tasks.task import Task

__all__ = ["TASKS", "find_task", "read_task", "task_from_values", "task_values"]

# A new task adds its file and one line.
_KINDS: tuple[type[Task[Any, Any]], ...] = (
    EmbeddingTask,
    LateInteractionTask,
    MultipleChoiceTask,
    QuestionAnsweringTask,
    RankingTask,
    RegressionTask,
    SequenceClassificationTask,
    SpanClassificationTask,
    SparseTask,
    TokenClassificationTask,
)
TASKS = {kind.name: kind for kind in _KINDS}


def find_task(name: str) -> type[Task[Any, Any]]:
    """Return the task class of a name. Raises :class:`UnknownNameError`, which lists all names."""
    if name not in TASKS:
        raise UnknownNameError(
            f"no task {name!r}{nearest(name, TASKS)}; there are {', '.join(TASKS)}"
        )
    return TASKS[name]


def read_task(value: JsonValue) -> Task[Any, Any]:
    """Make a task from its ``name`` and settings; missing settings get their defaults.

    Raises the error type of the value's :class:`JsonSource` for unknown settings and wrong values.
    """
    settings = dict(value.object())
    name = value.get("name").string()
    del settings["name"]
    made: Task[Any, Any] = replace(value, value=settings).read_as(find_task(name))
    return made


def task_from_values(name: str, values: Mapping[str, Any]) -> Task[Any, Any]:
    """Make the task with this name from its settings. Raises :class:`ConfigError`."""
    source = JsonSource(name="task", error=ConfigError, mend="")
    return read_task(JsonValue({**values, "name": name}, source))


def task_values(task: Task[Any, Any]) -> dict[str, Any]:
    """Return a task's name and settings as JSON values; see :func:`task_from_values`."""
    values: dict[str, Any] = asdict(task)  # type: ignore[call-overload]
    # JSON makes lists of tuples.
    return json.loads(json.dumps({"name": task.name, **values}))  # type: ignore[no-any-return]
