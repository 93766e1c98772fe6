"""Encodes predictions as JSON lines, CoNLL, SQuAD's JSON, or GLUE's .tsv."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.data.row_files import json_line
from encoder_engine.errors import OutputError
from encoder_engine.tasks.question_answering import QuestionAnsweringTask
from encoder_engine.tasks.sequence_task import SequenceTask
from encoder_engine.tasks.span_classification import SpanClassificationTask
from encoder_engine.tasks.token_classification import TokenClassificationTask

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from encoder_engine.tasks.task import Task

__all__ = ["OutputForm", "output_form"]


class OutputForm(ABC):
    """Encodes predictions, batch after batch, as the text of a file in one format."""

    # The suffix of the file, and the noun for messages.
    suffix: str
    noun: str

    def __init__(self, task: Task[Any, Any]) -> None:
        self.task = task
        self.num_rows = 0

    @classmethod
    @abstractmethod
    def takes(cls, task: Task[Any, Any]) -> bool:
        """Return whether the predictions of a task can be written in this format."""

    def begin(self) -> str:
        """Return the text that begins the file, before the first row."""
        return ""

    def write(self, examples: Sequence[Any], predictions: Sequence[Any]) -> str:
        """Encode the predictions of the next rows; return the text to append to the file."""
        parts = []
        for example, prediction in zip(examples, predictions, strict=True):
            parts.append(self.row(example, prediction))
            self.num_rows += 1
        return "".join(parts)

    @abstractmethod
    def row(self, example: Any, prediction: Any) -> str:
        """Encode the prediction of one row; return its text in the file."""

    def end(self) -> str:
        """Return the text that ends the file, after the last row."""
        return ""


class JsonLines(OutputForm):
    """Encodes a prediction as a JSON object on a line, with the columns that the task reads."""

    suffix, noun = ".jsonl", "lines of JSON"

    @classmethod
    def takes(cls, task: Task[Any, Any]) -> bool:
        """Return True: the predictions of every task can be written as JSON lines."""
        del task
        return True

    def row(self, example: Any, prediction: Any) -> str:
        """Return the JSON line of a row's example and prediction."""
        return json_line(self.task.to_record(example, prediction)).decode()


class ConllFile(OutputForm):
    """Encodes a sentence as a line per word: the word, a tab and its tag; then a blank line."""

    suffix, noun = ".conll", "CoNLL"

    @classmethod
    def takes(cls, task: Task[Any, Any]) -> bool:
        """Return whether a task predicts tags, or spans that are not nested, of words."""
        flat = isinstance(task, SpanClassificationTask) and not task.nested
        return flat or isinstance(task, TokenClassificationTask)

    def row(self, example: Any, prediction: Any) -> str:
        """Return the lines of a sentence: its words with their predicted tags.

        Raises :class:`OutputError` for a word unfit for CoNLL.
        """
        if isinstance(self.task, TokenClassificationTask):
            tags = list(prediction.tags)
        else:
            tags = ["O"] * len(example.words)
            for span in prediction.spans:
                tags[span.start : span.stop] = [f"I-{span.type}"] * (span.stop - span.start)
                tags[span.start] = f"B-{span.type}"
        for word in example.words:
            if not word or any(blank in word for blank in "\t\r\n"):
                raise OutputError(
                    f"sentence {self.num_rows} has the word {word!r:.40}, which a line of CoNLL "
                    "cannot hold; write .jsonl"
                )
        lines = [f"{word}\t{tag}\n" for word, tag in zip(example.words, tags, strict=True)]
        return "".join(lines) + "\n"


class SquadFile(OutputForm):
    """Encodes answers as one JSON object of answer texts by question id, for SQuAD's script."""

    suffix, noun = ".json", "the JSON of SQuAD's predictions"

    def __init__(self, task: Task[Any, Any]) -> None:
        super().__init__(task)
        self._ids: set[str] = set()

    @classmethod
    def takes(cls, task: Task[Any, Any]) -> bool:
        """Return whether a task answers questions."""
        return isinstance(task, QuestionAnsweringTask)

    def begin(self) -> str:
        """Return the opening brace of the JSON object."""
        return "{"

    def row(self, example: Any, prediction: Any) -> str:
        """Return a question's member of the object: its id, and its answer's text, which may be "".

        Raises :class:`OutputError` for a repeated id, of which readers would keep only one entry.
        """
        assert isinstance(self.task, QuestionAnsweringTask)
        if example.id in self._ids:
            raise OutputError(
                f"question {self.num_rows} has the id {example.id!r} of one before; give the "
                f"questions of all files different ids in the column {self.task.id!r}, or write "
                ".jsonl"
            )
        self._ids.add(example.id)
        entry = json_line({example.id: prediction.text}).decode()
        return ("," if self.num_rows else "") + "\n " + entry.rstrip("\n")[1:-1]

    def end(self) -> str:
        """Return the closing brace of the JSON object."""
        return "\n}\n"


class GlueFile(OutputForm):
    """Encodes predictions as the columns ``index`` and ``prediction``, for GLUE's server."""

    suffix, noun = ".tsv", "GLUE's .tsv"

    @classmethod
    def takes(cls, task: Task[Any, Any]) -> bool:
        """Return whether a task predicts one label or one score for each row."""
        return isinstance(task, SequenceTask) and not getattr(task, "multi_label", False)

    def begin(self) -> str:
        """Return the line with the names of the columns."""
        return "index\tprediction\n"

    def row(self, example: Any, prediction: Any) -> str:
        """Return the line of a prediction; scores have three decimals, as in GLUE's samples."""
        del example
        labels = getattr(prediction, "labels", None)
        value = f"{prediction.score:.3f}" if labels is None else labels[0]
        return f"{self.num_rows}\t{value}\n"


_FORMS: tuple[type[OutputForm], ...] = (JsonLines, ConllFile, SquadFile, GlueFile)


def output_form(path: str | os.PathLike[str], task: Task[Any, Any]) -> OutputForm:
    """Return the encoder of a task's predictions for the format that a file's suffix names.

    Raises :class:`OutputError` for a suffix that the task's predictions cannot be written to.
    """
    fitting = [form for form in _FORMS if form.takes(task)]
    for form in fitting:
        if Path(path).suffix == form.suffix:
            return form(task)
    known = ", ".join(f"{form.suffix} ({form.noun})" for form in fitting)
    raise OutputError(f"{path}: predictions of {task.name} can be written as {known}")
