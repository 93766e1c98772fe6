"""Finds and describes lone surrogates, which UTF-8 cannot encode; converts Arrow arrays."""

from __future__ import annotations

from typing import Any

__all__ = ["describe_surrogate", "find_surrogate", "from_arrow"]


def from_arrow(values: Any) -> Any:
    """Return a pyarrow array as a list of Python's objects; other values unchanged."""
    return values.to_pylist() if hasattr(values, "to_pylist") else values


def find_surrogate(text: str) -> int | None:
    """Return the index of a text's first lone surrogate; None: it has none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def describe_surrogate(text: str, index: int) -> str:
    """Return a message on a lone surrogate, worded as in csrc/bindings/errors.cpp."""
    return (
        f"a lone surrogate U+{ord(text[index]):04X} at character {index}, which no UTF-8 encodes; "
        "mend it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
    )
