"""Typed reading of JSON values, with errors that name the file and the place in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from encoder_engine import files
from encoder_engine.errors import TokenizerFileError
from encoder_engine.strings import find_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = [
    "MAX_COUNT",
    "MAX_ID",
    "Node",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_text",
]

# The C++ encoder keeps an id in 27 bits, and a table by id: gaps should not be absurd.
MAX_ID = 2**24 - 1
# What the extension and the arrays hold.
MAX_COUNT = 2**31 - 1


def read_text(path: Path) -> str:
    """Read a UTF-8 file."""
    return files.read_text(path, TokenizerFileError)


def read_bytes(path: Path) -> bytes:
    """Read a file."""
    return files.read_bytes(path, TokenizerFileError)


def read_json(path: Path) -> Node:
    """Read a JSON file whose top is an object."""
    return parse_json(read_bytes(path), path)


def parse_json(
    content: bytes, path: Path, *, parse_float: Callable[[str], float] | None = None
) -> Node:
    """Parse the content of a JSON file whose top is an object."""
    text = files.decode_text(content, path, TokenizerFileError)
    value = files.parse_json(text, path, TokenizerFileError, parse_float=parse_float)
    node = Node(value, path.name)
    node.object()
    return node


@dataclass(frozen=True)
class Node:
    """A JSON value and its place in the file."""

    value: Any
    where: str

    def fail(self, message: str) -> TokenizerFileError:
        """Return an error that names this place."""
        return TokenizerFileError(f"{self.where}: {message}")

    def expected(self, kind: str) -> TokenizerFileError:
        """Return an error about the type of the value."""
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return self.fail(f"expected {kind}, found {shown}")

    @property
    def is_null(self) -> bool:
        """True where the value is null or absent."""
        return self.value is None

    def object(self) -> dict[str, Any]:
        """Read an object."""
        if not isinstance(self.value, dict):
            raise self.expected("an object")
        return self.value

    def items(self) -> list[Node]:
        """Read an array."""
        if not isinstance(self.value, list):
            raise self.expected("an array")
        return [Node(item, f"{self.where}[{index}]") for index, item in enumerate(self.value)]

    def get(self, key: str) -> Node:
        """Return a member, null where it is absent."""
        return Node(self.object().get(key), f"{self.where}.{key}")

    def kind(self) -> str:
        """Return the member ``type``, the kind of the object."""
        return self.get("type").text()

    def only_keys(self, known: Iterable[str]) -> None:
        """Refuse members that are not among ``known``."""
        unknown = sorted(set(self.object()) - set(known))
        if unknown:
            raise self.fail(f"unsupported: {', '.join(map(repr, unknown))}")

    def text(self) -> str:
        """Read a string without lone surrogates, which no text can hold."""
        if not isinstance(self.value, str):
            raise self.expected("a string")
        if find_surrogate(self.value) is not None:
            raise self.expected("a string without lone surrogates")
        return self.value

    def flag(self, default: bool | None = None) -> bool:
        """Read a boolean; ``default`` stands for an absent one."""
        if self.value is None and default is not None:
            return default
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def count(self, default: int | None = None, *, most: int = MAX_COUNT) -> int:
        """Read an integer of at least 0; ``default`` stands for an absent one."""
        if self.value is None and default is not None:
            return default
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 0:
            raise self.expected("an integer of at least 0")
        if self.value > most:
            raise self.expected(f"an integer of at most {most}")
        return self.value

    def one_of(self, names: dict[str, Any], default: str | None = None) -> Any:
        """Read one of the known names and return its value."""
        value = default if self.value is None else self.value
        if not isinstance(value, str) or value not in names:
            raise self.expected(" or ".join(map(repr, names)))
        return names[value]
