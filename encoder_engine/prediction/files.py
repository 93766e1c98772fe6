"""Predictions as a :class:`Kind` of results, which runs over files write as columns of tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.kinds.kind import Kind
from encoder_engine.kinds.options import Options
from encoder_engine.tasks.predicting import predict_batches
from encoder_engine.tasks.registry import task_values
from encoder_engine.vectors.columns import PredictedRows

if TYPE_CHECKING:
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.packing.token_rows import IdArray, TokenRows, WindowRows
    from encoder_engine.tasks.items import Items

__all__ = ["Predictions"]


class TaskRows(NamedTuple):
    """Consecutive rows as examples of a task, and as items: texts, or windows of them, tokenized.

    Has the attributes of :class:`WindowRows`.
    """

    examples: list[Any]
    items: Items

    @property
    def ids(self) -> IdArray:
        """The token ids of all items, int32 [T]."""
        return self.items.rows.ids

    @property
    def truncated(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Bool [n] with as many True values as rows were truncated; which rows is not known."""
        return np.arange(len(self.examples)) < self.items.num_truncated


class Predictions(Kind):
    """The :class:`Kind` of a fine-tuned model's predictions for rows: texts or text pairs."""

    name = "predictions"
    row_name = "row"
    action = "Predicting"
    noun = "predictions"

    def resolve(self, **keywords: Any) -> Options:
        """Validate the keywords that all kinds of results have; return the call's options.

        ``dimension`` has no meaning for predictions.
        """
        return Options(**self.common_options(**keywords), dimension=1)

    def needs_tokens(self, options: Options) -> bool:
        """Return False: the task itself refuses rows that it cannot read."""
        del options
        return False

    def characters(self, row: Any) -> int:
        """Return the number of characters of a text, or of both texts of a pair."""
        return sum(map(len, (row,) if isinstance(row, str) else row))

    def tokenize(self, rows: list[Any], options: Options) -> WindowRows:
        """Make examples of the task from rows, and tokenize them as the task does."""
        del options
        model = self.model
        examples = [model.example(number, row) for number, row in enumerate(rows)]
        items = model.text_task.encode(examples, self.tokenizer, model.windows)
        found: WindowRows = TaskRows(examples, items)  # type: ignore[assignment]
        return found

    def rows(self, encoding: Any, options: Options) -> TokenRows:
        """Return the token rows of all items that :meth:`tokenize` made."""
        del options
        rows: TokenRows = encoding.items.rows
        return rows

    def wanted(self, options: Options) -> tuple[()]:
        """Return (): the engine is asked for nothing here, as the task's own engine computes."""
        del options
        return ()

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> PredictedRows:
        """Return the predictions for consecutive rows, as columns."""
        encoding: Any = window.encoding
        parts = predict_batches(
            self.model.engine,
            self.model.text_task,
            encoding.items,
            encoding.examples,
            batch_tokens=options.batch_tokens,
            finite=True,
        )
        batches.num_padded_tokens = len(encoding.ids)
        found: PredictedRows = self.model.columns([one for _, part in parts for one in part])
        return found

    def join(self, parts: list[PredictedRows], options: Options) -> PredictedRows:
        """Concatenate the columns of successive parts of the input."""
        del options
        none = self.model.columns([])
        columns = {name: [x for part in parts for x in part.columns[name]] for name in none.columns}
        return PredictedRows(columns=columns, types=none.types)

    def limit(self, options: Options) -> int:
        """Return the most tokens that the model reads at once: of a text, or of a window of it."""
        del options
        most: int = self.model.windows.max_length
        return most

    def describe(self, options: Options) -> dict[str, Any]:
        """Return task, settings and windows, as JSON values; runs over files record them."""
        task, windows = task_values(self.model.text_task), asdict(self.model.windows)
        return {**super().describe(options), "task": task, "windows": windows}
