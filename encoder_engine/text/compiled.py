"""Compiled tokenizers: one file that is mapped into memory and used where it lies.

The layout, all numbers little-endian: magic, version, checksum of all that follows, number of
sections; for each its name, offset and size; then the sections, each at a multiple of 64 bytes.
One section is the specification as JSON, the others are arrays.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import OutputError, TokenizerFileError
from encoder_engine.files import write_atomically
from encoder_engine.text import spec as spec_module
from encoder_engine.text.mapped_vocabulary import MappedVocabulary, vocabulary_sections
from encoder_engine.text.native import extension, wordpiece_model
from encoder_engine.text.spec import TokenizerSpec, WordPieceSpec

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["SUFFIX", "read_compiled", "write_compiled"]

SUFFIX = ".eetok"
MAGIC = b"EETOK\r\n\x1a"
# Raised whenever a section's layout changes.
VERSION = 1
HEADER = struct.Struct("<8sIIQ")
ENTRY = struct.Struct("<16sQQ")
ALIGNMENT = 64
VOCABULARY = ("tokens", "ends", "ids", "order", "model")


def write_compiled(spec: TokenizerSpec, path: str | PathLike[str]) -> None:
    """Write a tokenizer as one compiled file, whole or not at all.

    Raises:
        OutputError: the file cannot be written, or the tokenizer is of a kind that is not compiled.

    """
    place = Path(path)
    if place.suffix != SUFFIX:
        raise OutputError(f"{place}: a compiled tokenizer's name ends in {SUFFIX}")
    if not isinstance(spec.model, WordPieceSpec):
        raise OutputError(
            f"{place}: a {spec.model.description} tokenizer cannot be compiled, only WordPiece "
            "can; save it as a directory"
        )
    sections = vocabulary_sections(spec.model.vocab)
    sections["model"] = wordpiece_model(spec.model).image()
    bare = replace(spec, model=replace(spec.model, vocab={}))
    sections["spec"] = json.dumps(_encode(bare), ensure_ascii=False).encode()
    try:
        write_atomically(place, _pack(sections))
    except OSError as error:
        raise OutputError(f"{place}: the tokenizer cannot be written: {error}") from error


def read_compiled(path: Path) -> TokenizerSpec:
    """Map a compiled file; its vocabulary stays there."""
    if sys.byteorder != "little":
        raise TokenizerFileError(
            f"{path}: compiled tokenizers are little-endian, this machine is not"
        )
    sections = _map(path)
    missing = {"spec", *VOCABULARY} - sections.keys()
    if missing:
        raise TokenizerFileError(f"{path} has no section {', '.join(sorted(missing))}")
    spec: TokenizerSpec = _decode(json.loads(bytes(sections["spec"])))
    vocab = MappedVocabulary(**{name: sections[name] for name in VOCABULARY})
    if not isinstance(spec.model, WordPieceSpec):
        raise TokenizerFileError(f"{path} holds a model of another kind than WordPiece")
    return replace(spec, model=replace(spec.model, vocab=vocab))


def _pack(sections: dict[str, bytes]) -> bytes:
    offset = _aligned(HEADER.size + len(sections) * ENTRY.size)
    table, body = b"", b""
    for name, content in sections.items():
        table += ENTRY.pack(name.encode(), offset + len(body), len(content))
        body += content + bytes(_aligned(len(content)) - len(content))
    table += bytes(offset - HEADER.size - len(table))
    checksum = extension().checksum(table + body)
    return HEADER.pack(MAGIC, VERSION, len(sections), checksum) + table + body


def _map(path: Path) -> dict[str, memoryview]:
    with path.open("rb") as file:
        try:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:  # an empty file cannot be mapped
            view = memoryview(b"")
    if len(view) < HEADER.size or bytes(view[: len(MAGIC)]) != MAGIC:
        raise TokenizerFileError(f"{path} is not a compiled tokenizer")
    _, version, count, checksum = HEADER.unpack_from(view)
    if version != VERSION:
        raise TokenizerFileError(
            f"{path} was compiled by another version of encoder-engine (layout {version}, this one "
            f"reads {VERSION}); compile it again"
        )
    if extension().checksum(view[HEADER.size :]) != checksum:
        raise TokenizerFileError(f"{path} is damaged: its checksum differs; compile it again")
    sections: dict[str, memoryview] = {}
    for index in range(count):
        name, offset, size = ENTRY.unpack_from(view, HEADER.size + index * ENTRY.size)
        sections[name.rstrip(b"\0").decode()] = view[offset : offset + size]
    return sections


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _encode(value: Any) -> Any:
    """Turn specifications into JSON's types; of a dataclass, its name comes along."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
        return {"": type(value).__name__} | members
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if isinstance(value, dict) and "" in value:
        members = {name: _decode(member) for name, member in value.items() if name}
        return getattr(spec_module, value[""])(**members)
    return value
