"""Spans that a row names: [start, end], in characters or in words, the end excluded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_engine.inputs.records import Record

__all__ = ["read_span"]


def read_span(record: Record, name: str, value: Any, length: int, unit: str) -> tuple[int, int]:
    """Return a span of a text of ``length`` units; refuse a value that is not a range within it.

    name: the value's place in the row, and ``unit`` what it counts, for the message.
    """
    pair = list(value) if hasattr(value, "__len__") and not isinstance(value, str) else []
    whole = all(hasattr(end, "__index__") and not isinstance(end, bool) for end in pair)
    if len(pair) != 2 or not whole or not 0 <= pair[0] < pair[1] <= length:
        record.refuse(
            f"{name} must be [start, end] with 0 <= start < end <= {length}, the text's {unit}; "
            f"got {value!r:.60}"
        )
    return int(pair[0]), int(pair[1])
