"""Predicts examples batch by batch, for evaluation during training and for prediction alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.engine.protocol import OutOfDeviceMemoryError
from encoder_engine.errors import DeviceMemoryError, NonFiniteVectorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.tasks.engines.engine import TaskEngine
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Outputs, Task

__all__ = ["predict_batches"]


def predict_batches(
    engine: TaskEngine,
    task: Task[Any, Any],
    items: Items,
    examples: Sequence[Any],
    *,
    batch_tokens: int,
    part: tuple[int, int] = (0, 1),
    finite: bool = False,
) -> Iterator[tuple[int, list[Any]]]:
    """Yield, for each batch, the index of its first example and the predictions of its examples.

    The outputs of a batch are decoded before the next is computed.

    batch_tokens: the most tokens of a batch; a longer example is a batch of its own.
    part: ``(r, n)``: compute only batches r, r + n, ..., as process r of n does.
    finite: raise :class:`NonFiniteVectorError` where the model computes NaN or plus infinity.

    Raises :class:`DeviceMemoryError` for a batch that does not fit on the device.
    """
    for place, numbers in enumerate(items.batches(batch_tokens)):
        if place % part[1] != part[0]:
            continue
        batch = items.take(numbers)
        first, stop = int(batch.examples[0]), int(batch.examples[-1]) + 1
        batch = replace(batch, examples=batch.examples - np.int64(first))
        try:
            outputs = engine.outputs(task.batch(batch))
        except OutOfDeviceMemoryError as error:
            raise DeviceMemoryError(
                f"{error}: rows {first} to {stop - 1}; lower batch_tokens, end what else holds its "
                "memory, or choose another device",
                row=first,
            ) from error
        if finite:
            _check_finite(outputs, range(first, stop))
        yield first, task.decode(outputs, batch, examples[first:stop])


def _check_finite(outputs: Outputs, rows: range) -> None:
    # Minus infinity is the score of tags that a CRF does not allow.
    if not all((values < np.inf).all() for values in outputs.values()):
        raise NonFiniteVectorError(
            f"the model computed NaN or infinity for some of the rows {rows[0]} to {rows[-1]}; "
            "load it in float32, or train it again if it diverged",
            rows=rows,
        )
