"""Compiled tokenizers: one file that is read into memory and used where it lies.

The memory is the process's own. A mapped file would be shared, but whoever writes over it changes
results without a word, and whoever cuts it short ends the process.

The layout, all numbers little-endian: magic, version, checksum of all that follows, number of
sections; for each its name, offset and size; then the sections, each at a multiple of 64 bytes.
One section is the specification as JSON, the others are arrays.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from encoder_engine.errors import OutputError, TokenizerFileError
from encoder_engine.files import write_atomically
from encoder_engine.text.compiled.checks import check_spec
from encoder_engine.text.compiled.spec_json import spec_from_value, spec_to_value
from encoder_engine.text.encoders.build import native_model
from encoder_engine.text.extension import extension
from encoder_engine.text.mapped.pieces import (
    MappedBytes,
    MappedKinds,
    MappedPieces,
    MappedScores,
    kind_section,
    score_section,
)
from encoder_engine.text.mapped.vocabulary import MappedVocabulary, vocabulary_sections
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import WordPieceSpec
from encoder_engine.text.spec.unigram import (
    SentencePieceDecoderSpec,
    SentencePieceSpec,
    UnigramSpec,
)

if TYPE_CHECKING:
    from os import PathLike

    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["SUFFIX", "read_compiled", "write_compiled"]

SUFFIX = ".eetok"
MAGIC = b"EETOK\r\n\x1a"
# Raised whenever a section's layout changes.
VERSION = 4
HEADER = struct.Struct("<8sIIQ")
ENTRY = struct.Struct("<16sQQ")
ALIGNMENT = 64

CompiledModel: TypeAlias = "WordPieceSpec | UnigramSpec | SentencePieceSpec"


def write_compiled(spec: TokenizerSpec, path: str | PathLike[str]) -> None:
    """Write a tokenizer as one compiled file, whole or not at all.

    Raises:
        OutputError: the file cannot be written, or the tokenizer is of a kind that is not compiled.

    """
    place = Path(path)
    if place.suffix != SUFFIX:
        raise OutputError(f"{place}: a compiled tokenizer's name ends in {SUFFIX}")
    if isinstance(spec.model, LibrarySpec):
        raise OutputError(
            f"{place}: a {spec.model.description} tokenizer cannot be compiled, only WordPiece and "
            "Unigram can; save it as a directory"
        )
    bare, sections = _take_arrays(spec.model)
    decoder = None if isinstance(spec.decoder, SentencePieceDecoderSpec) else spec.decoder
    content = spec_to_value(replace(spec, model=bare, decoder=decoder))
    sections["model"] = native_model(spec.model).image()
    sections["spec"] = json.dumps(content, ensure_ascii=False).encode()
    try:
        write_atomically(place, _pack(sections))
    except OSError as error:
        raise OutputError(f"{place}: the tokenizer cannot be written: {error}") from error


def read_compiled(path: Path) -> TokenizerSpec:
    """Read a compiled file; vocabulary and model stay in the one block of memory.

    Raises:
        TokenizerFileError: the file is damaged, of another version, or not a compiled tokenizer.

    """
    if sys.byteorder != "little":
        raise TokenizerFileError(
            f"{path}: compiled tokenizers are little-endian, this machine is not"
        )
    content = _read_file(path)
    try:
        return _read_sections(_sections(content))
    except TokenizerFileError as error:
        raise TokenizerFileError(f"{path}: {error}; compile it again") from error


def _take_arrays(model: CompiledModel) -> tuple[CompiledModel, dict[str, bytes]]:
    """Give a model without its vocabulary, and the vocabulary's arrays."""
    if isinstance(model, WordPieceSpec):
        ordered = sorted(model.vocab.items(), key=lambda item: item[1])
        tokens, ids = [token for token, _ in ordered], [number for _, number in ordered]
        return replace(model, vocab={}), vocabulary_sections(tokens, ids)
    sections = vocabulary_sections(model.pieces, range(len(model.pieces)))
    sections["scores"] = score_section(model.scores)
    if isinstance(model, UnigramSpec):
        return replace(model, pieces=(), scores=()), sections
    sections["kinds"] = kind_section(model.kinds)
    sections["file"] = bytes(model.file)
    return replace(model, file=b"", pieces=(), scores=(), kinds=()), sections


def _read_sections(sections: dict[str, memoryview]) -> TokenizerSpec:
    try:
        content = json.loads(bytes(_section(sections, "spec")))
    except (ValueError, RecursionError) as error:
        raise TokenizerFileError(f"the specification is damaged: {error}") from error
    spec = spec_from_value(content)
    if isinstance(spec.model, LibrarySpec):
        raise TokenizerFileError(f"it holds a {spec.model.description} model")
    model = _with_arrays(spec.model, sections)
    spec = replace(spec, model=model)
    if isinstance(model, SentencePieceSpec):
        spec = replace(spec, decoder=SentencePieceDecoderSpec(model=model))
    check_spec(spec)
    return spec


def _with_arrays(model: CompiledModel, sections: dict[str, memoryview]) -> CompiledModel:
    """Give back what :func:`_take_arrays` took, where it lies."""
    names = ("tokens", "ends", "ids", "order")
    vocab = MappedVocabulary(**{name: _section(sections, name) for name in names})
    kind = "WordPieceModel" if isinstance(model, WordPieceSpec) else "UnigramModel"
    try:
        vocab.model = getattr(extension(), kind).map(_section(sections, "model"))
    except ValueError as error:
        raise TokenizerFileError(f"the model is damaged: {error}") from error
    if isinstance(model, WordPieceSpec):
        return replace(model, vocab=vocab)
    scores = MappedScores(_section(sections, "scores"))
    if isinstance(model, UnigramSpec):
        return replace(model, pieces=MappedPieces(vocab, scores), scores=scores)
    kinds = MappedKinds(_section(sections, "kinds"))
    return replace(
        model,
        file=MappedBytes(_section(sections, "file")),
        pieces=MappedPieces(vocab, scores, kinds),
        scores=scores,
        kinds=kinds,
    )


def _section(sections: dict[str, memoryview], name: str) -> memoryview:
    if name not in sections:
        raise TokenizerFileError(f"it has no section {name}")
    return sections[name]


def _pack(sections: dict[str, bytes]) -> bytes:
    offset = _aligned(HEADER.size + len(sections) * ENTRY.size)
    table, body = b"", []
    for name, content in sections.items():
        table += ENTRY.pack(name.encode(), offset, len(content))
        body.append(content.ljust(_aligned(len(content)), b"\0"))
        offset += len(body[-1])
    table = table.ljust(_aligned(HEADER.size + len(table)) - HEADER.size, b"\0")
    whole = table + b"".join(body)
    return HEADER.pack(MAGIC, VERSION, len(sections), extension().checksum(whole)) + whole


def _read_file(path: Path) -> memoryview:
    """Read a file of this version whose checksum is right."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < HEADER.size:
            raise TokenizerFileError(f"{path} is not a compiled tokenizer")
        memory = _own_memory(size)
        view, done = memoryview(memory), 0
        while done < size:
            taken = file.readinto(view[done:])
            if not taken:
                break  # cut short by now, so that the checksum differs
            done += taken
    view = view.toreadonly()
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise TokenizerFileError(f"{path} is not a compiled tokenizer")
    _, version, _, checksum = HEADER.unpack_from(view)
    if version != VERSION:
        raise TokenizerFileError(
            f"{path} was compiled by another version of encoder-engine (layout {version}, this one "
            f"reads {VERSION}); compile it again"
        )
    if extension().checksum(view[HEADER.size :]) != checksum:
        raise TokenizerFileError(f"{path} is damaged: its checksum differs; compile it again")
    return view


def _own_memory(size: int) -> mmap.mmap:
    """Give memory that begins at a page, as sections lie at multiples of 64 bytes."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    # All of it at once, where the system can: faults for every page take longer than the copy.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    return mmap.mmap(-1, size, flags=flags)


def _sections(view: memoryview) -> dict[str, memoryview]:
    count = HEADER.unpack_from(view)[2]
    if count > (len(view) - HEADER.size) // ENTRY.size:
        raise TokenizerFileError(f"a table of {count} sections is longer than the file")
    sections: dict[str, memoryview] = {}
    for index in range(count):
        name, offset, size = ENTRY.unpack_from(view, HEADER.size + index * ENTRY.size)
        if offset % ALIGNMENT or offset + size > len(view):
            raise TokenizerFileError(f"section {index} does not lie in the file")
        sections[name.rstrip(b"\0").decode("ascii", "replace")] = view[offset : offset + size]
    return sections


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
