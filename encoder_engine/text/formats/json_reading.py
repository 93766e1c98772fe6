"""Reads the JSON files of a tokenizer; raises :class:`TokenizerFileError` for bad ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from encoder_engine import files, json_values
from encoder_engine.errors import TokenizerFileError
from encoder_engine.json_values import JsonSource, JsonValue
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = [
    "MAX_ID",
    "compact_json",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_text",
    "read_token_ids",
    "value_of",
]

# The C++ encoder keeps an id in 27 bits, and a table by id: gaps should not be absurd.
MAX_ID = 2**24 - 1


def read_text(path: Path) -> str:
    """Read a UTF-8 file as a string."""
    return files.read_text(path, TokenizerFileError)


def read_bytes(path: Path) -> bytes:
    """Read a file as bytes."""
    return files.read_bytes(path, TokenizerFileError)


def value_of(value: Any, name: str) -> JsonValue:
    """Wrap the parsed content of a JSON file; ``name``: the file's name, for messages."""
    return JsonValue(value, JsonSource(name=name, error=TokenizerFileError, null_is_absent=True))


def read_json(path: Path) -> JsonValue:
    """Read a JSON file whose top is an object."""
    return parse_json(read_bytes(path), path)


def parse_json(
    content: bytes, path: Path, *, parse_float: Callable[[str], float] | None = None
) -> JsonValue:
    """Parse the content of a JSON file whose top is an object."""
    text = files.decode_text(content, path, TokenizerFileError)
    value = json_values.parse_json(text, path, TokenizerFileError, parse_float=parse_float)
    found = value_of(value, path.name)
    found.object()
    return found


def compact_json(value: object) -> str:
    """Return a parsed value as JSON without white space, in which a specification keeps it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_token_ids(node: JsonValue) -> Mapping[str, int]:
    """Read a vocabulary, an object of tokens and their ids: from 0 to ``MAX_ID``, and distinct."""
    if isinstance(node.value, NativeVocabulary):
        return node.value
    vocab = node.object()
    for token, number in vocab.items():
        node.at(token, "").string()
        if type(number) is not int or not 0 <= number <= MAX_ID:
            raise node.at(number, f"[{token!r}]").must_be(f"an integer from 0 to {MAX_ID}")
    if len(set(vocab.values())) != len(vocab):
        raise node.fail("two tokens share an id")
    return vocab
