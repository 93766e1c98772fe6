"""Finds and describes lone surrogates, which UTF-8 cannot encode; converts Arrow arrays."""

from __future__ import annotations

from typing import Any

__all__ = ["describe_surrogate", "find_surrogate", "from_arrow"]


def from_arrow(values: Any) -> Any:
    """Return an array of pyarrow, whose items are not ``str``, as a list; else the argument."""
    return values.to_pylist() if hasattr(values, "to_pylist") else values


def find_surrogate(text: str) -> int | None:
    """Return the index of the first lone surrogate, or None."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def describe_surrogate(text: str, index: int) -> str:
    """Describe a lone surrogate, its position and its remedy, as csrc/bindings/errors.cpp does."""
    return (
        f"a lone surrogate U+{ord(text[index]):04X} at character {index}, which no UTF-8 encodes; "
        "mend it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
    )
