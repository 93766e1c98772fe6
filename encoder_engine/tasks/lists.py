"""Tokenizes, batches and scores lists of text pairs: a question's choices, a query's documents.

Dimensions: B lists of N texts (tokenized pairs) in all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from encoder_engine.engine.outputs import Logits
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.batching import refuse_no_token
from encoder_engine.tasks.items import LABELS, SIZES, Items, Ragged, TaskBatch, feature_targets
from encoder_engine.tasks.task import Example, Prediction, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.tasks.task import Windows
    from encoder_engine.text import Tokenizer

__all__ = ["ListTask", "encode_lists", "list_scores", "split_lists"]


def encode_lists(
    tokenizer: Tokenizer,
    windows: Windows,
    pairs: Sequence[Sequence[tuple[str, str]]],
    labels: Sequence[Sequence[float]] | None,
) -> Items:
    """Tokenize lists of text pairs, each list as an item; too long pairs are truncated.

    ``labels``: one for each pair; None: unlabelled. ``num_truncated`` counts lists with such pairs.
    """
    flat = [pair for one in pairs for pair in one]
    encoding = tokenizer.encode_batch(
        [one for one, _ in flat],
        [two for _, two in flat],
        max_length=windows.max_length,
        truncation="longest_first",
    )
    offsets = np.cumsum([0, *(len(one) for one in pairs)]).astype(np.int64)
    owners = np.repeat(np.arange(len(pairs)), np.diff(offsets))
    refuse_no_token(encoding, owners)
    columns: dict[str, npt.NDArray[Any] | Ragged] = {}
    if labels is not None:
        values = np.array([label for one in labels for label in one], np.float64)
        columns[LABELS] = Ragged(values, offsets)
    return Items(
        rows=TokenRows.of(encoding),
        offsets=offsets,
        examples=np.arange(len(pairs)),
        columns=columns,
        num_truncated=len(set(owners[np.asarray(encoding.truncated)].tolist())),
    )


class ListTask(Task[Example, Prediction], Generic[Example, Prediction]):
    """A task whose items are lists of texts."""

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input from a batch of items, which are lists of texts."""
        targets = {SIZES: np.diff(items.offsets), **feature_targets(items)}
        if LABELS in items.columns:
            targets[LABELS] = items.ragged(LABELS).values
        return TaskBatch(items.rows, targets)

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return where each item's cached encoder outputs begin, [N + 1]: one row per text."""
        return items.offsets


def list_scores(engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
    """Compute a batch's ``scores``, float32 [N], one per text, by the compiled engine."""
    return {"scores": engine.run(batch.rows, Logits())[0][:, 0]}


def split_lists(scores: npt.NDArray[Any], items: Items) -> list[npt.NDArray[np.float64]]:
    """Split a batch's scores of texts, [N], into one array per list: a question or a query."""
    return np.split(scores.astype(np.float64), items.offsets[1:-1])
