"""Tokenized text on disk: shards that are mapped, never read whole, under one manifest.

A corpus is a folder. A shard of it is four ``.npy`` files: ``NNNNN.tokens`` (uint16, or uint32 for
a vocabulary beyond 65,536), every sentence end to end without special tokens; ``NNNNN.sentences``
int64 [S + 1] and ``NNNNN.documents`` int64 [D + 1], where sentences begin among the tokens and
documents among the sentences; ``NNNNN.languages`` uint16 [D]. ``words.npy`` bool [V] says which
tokens begin a word; ``tokenizer/`` is what cut them. ``manifest.json``, written last, holds their
counts and SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.errors import CorpusError, TokenIdError
from encoder_engine.files import PendingFile, read_json, write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    Offsets = npt.NDArray[np.int64]
    Tokens = npt.NDArray[np.unsignedinteger[Any]]

__all__ = ["Corpus", "Document", "Shard", "ShardEntry", "Vocabulary", "write_corpus", "write_shard"]

FORMAT = "encoder_engine corpus 1"
MANIFEST, WORDS, TOKENIZER = "manifest.json", "words.npy", "tokenizer"
PARTS = ("tokens", "sentences", "documents", "languages")


class Document(NamedTuple):
    """One text: its sentences' token ids, and the number of its language."""

    sentences: Sequence[npt.NDArray[np.integer[Any]]]
    language: int = 0


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What training must know of the tokenizer.

    ``fingerprint`` tells one tokenizer from another.
    """

    size: int
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    fingerprint: str

    def __post_init__(self) -> None:
        for name in ("cls_id", "sep_id", "mask_id", "pad_id"):
            value = getattr(self, name)
            if not 0 <= value < self.size:
                raise CorpusError(f"{name} is {value}, the vocabulary has {self.size} tokens")


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """A shard as the manifest names it; ``sha256`` of each of its files, by part."""

    name: str
    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: dict[str, str]


def write_shard(
    directory: Path, number: int, documents: Sequence[Document], vocabulary: Vocabulary
) -> ShardEntry:
    """Write a shard's files, each whole or not at all, replacing older ones.

    Empty sentences and documents are left out. Raises :class:`TokenIdError` for an id outside the
    vocabulary, naming the document, and :class:`OutputError` where the disk refuses.
    """
    _check_ids(documents, vocabulary)
    sentences: list[npt.NDArray[np.integer[Any]]] = []
    document_ends, languages = [0], []
    for document in documents:
        kept = [sentence for sentence in document.sentences if len(sentence)]
        if not kept:
            continue
        sentences += kept
        document_ends.append(len(sentences))
        languages.append(document.language)
    kind = np.uint16 if vocabulary.size <= 2**16 else np.uint32
    sizes = np.fromiter((len(sentence) for sentence in sentences), np.int64, len(sentences))
    arrays: dict[str, npt.NDArray[Any]] = {
        "tokens": np.concatenate(sentences).astype(kind) if sentences else np.zeros(0, kind),
        "sentences": np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        "documents": np.asarray(document_ends, np.int64),
        "languages": np.asarray(languages, np.uint16),
    }
    name = f"{number:05d}"
    return ShardEntry(
        name=name,
        num_documents=len(languages),
        num_sentences=len(sentences),
        num_tokens=len(arrays["tokens"]),
        sha256={
            part: _write_array(directory / f"{name}.{part}.npy", arrays[part]) for part in PARTS
        },
    )


def _check_ids(documents: Sequence[Document], vocabulary: Vocabulary) -> None:
    for place, document in enumerate(documents):
        if not len(document.sentences):
            continue
        ids = np.concatenate(document.sentences)
        if len(ids) and (ids.min() < 0 or ids.max() >= vocabulary.size):
            raise TokenIdError(
                f"document {place} has a token outside 0..{vocabulary.size - 1}: {ids.min()} to "
                f"{ids.max()}; it was cut by another tokenizer",
                row=place,
            )


def _write_array(path: Path, array: npt.NDArray[Any]) -> str:
    """Write an array, and return the SHA-256 of its file."""
    pending = PendingFile(path, overwrite=True)
    try:
        np.save(pending.stream, array)
        pending.stream.flush()
        with pending.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        pending.publish()
    finally:
        pending.discard()
    return digest


def write_corpus(
    directory: Path,
    shards: Sequence[ShardEntry],
    vocabulary: Vocabulary,
    word_starts: npt.NDArray[np.bool_],
    languages: Sequence[str] = (),
) -> Corpus:
    """Write the manifest over shards that are there, which makes them a corpus; open it.

    ``word_starts`` bool [V]: the tokens that begin a word. ``languages``: their names, by number.
    """
    if word_starts.shape != (vocabulary.size,) or word_starts.dtype != np.bool_:
        raise CorpusError(
            f"word_starts must be bool [{vocabulary.size}], got {word_starts.dtype} "
            f"{list(word_starts.shape)}"
        )
    manifest = {
        "format": FORMAT,
        "vocabulary": asdict(vocabulary),
        "languages": list(languages),
        "words": _write_array(directory / WORDS, word_starts),
        "shards": [asdict(shard) for shard in shards],
    }
    write_atomically(directory / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return Corpus.open(directory)


class Shard:
    """A shard's arrays, mapped: what is not touched takes no memory."""

    def __init__(self, directory: Path, entry: ShardEntry, vocabulary: Vocabulary) -> None:
        self.entry = entry
        loaded = {part: _map(directory / f"{entry.name}.{part}.npy") for part in PARTS}
        self.tokens: Tokens = loaded["tokens"]
        self.sentences: Offsets = loaded["sentences"]
        self.documents: Offsets = loaded["documents"]
        self.languages: npt.NDArray[np.uint16] = loaded["languages"]
        kind = np.uint16 if vocabulary.size <= 2**16 else np.uint32
        found = (
            *(len(self.tokens), len(self.sentences) - 1, len(self.documents) - 1),
            *(len(self.languages), self.tokens.dtype, int(self.sentences[-1])),
            int(self.documents[-1]),
        )
        expected = (
            *(entry.num_tokens, entry.num_sentences, entry.num_documents),
            *(entry.num_documents, np.dtype(kind), entry.num_tokens),
            entry.num_sentences,
        )
        if found != expected:
            raise CorpusError(
                f"shard {entry.name} in {directory} is not what the manifest says: {found} against "
                f"{expected}; prepare the corpus again"
            )

    @cached_property
    def document_starts(self) -> Offsets:
        """Where each document begins among the tokens, and where the last ends: [D + 1]."""
        starts: Offsets = self.sentences[self.documents]
        return starts


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise CorpusError(f"{path} is missing; copy the whole corpus") from None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} is not a whole .npy file ({error}); copy it again") from error
    if array.ndim != 1 or (array.dtype == np.int64 and len(array) == 0):
        raise CorpusError(f"{path} holds {array.dtype} {list(array.shape)}, which no corpus has")
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Shards, the vocabulary they are in, and which of its tokens begin a word, bool [V]."""

    directory: Path
    shards: tuple[Shard, ...]
    vocabulary: Vocabulary
    word_starts: npt.NDArray[np.bool_]
    languages: tuple[str, ...]

    @classmethod
    def open(cls, directory: Path, *, verify: bool = False) -> Corpus:
        """Map a corpus; ``verify`` reads every file and compares its SHA-256.

        Raises :class:`CorpusError` for what is missing, damaged, or no corpus.
        """
        path = directory / MANIFEST
        manifest = read_json(path, CorpusError)
        try:
            if manifest["format"] != FORMAT:
                raise CorpusError(
                    f"{path} is {manifest['format']!r}, this reads {FORMAT!r}; "
                    "prepare the corpus again"
                )
            vocabulary = Vocabulary(**manifest["vocabulary"])
            entries = [ShardEntry(**entry) for entry in manifest["shards"]]
            languages, words = tuple(manifest["languages"]), str(manifest["words"])
        except (KeyError, TypeError) as error:
            raise CorpusError(f"{path} is no manifest of a corpus: {error}") from error
        if verify:
            _verify(directory, {WORDS: words})
            for entry in entries:
                named = {f"{entry.name}.{part}.npy": entry.sha256[part] for part in PARTS}
                _verify(directory, named)
        return cls(
            directory=directory,
            shards=tuple(Shard(directory, entry, vocabulary) for entry in entries),
            vocabulary=vocabulary,
            word_starts=_map(directory / WORDS),
            languages=languages,
        )

    @property
    def num_documents(self) -> int:
        """Documents of all shards."""
        return sum(shard.entry.num_documents for shard in self.shards)

    @property
    def num_sentences(self) -> int:
        """Sentences of all shards."""
        return sum(shard.entry.num_sentences for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        """Tokens of all shards, special ones not among them."""
        return sum(shard.entry.num_tokens for shard in self.shards)


def _verify(directory: Path, expected: dict[str, str]) -> None:
    for name, digest in expected.items():
        path = directory / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror}") from error
        if found != digest:
            raise CorpusError(
                f"{path} has SHA-256 {found}, the manifest says {digest}; the file is damaged: "
                "copy it again or prepare the corpus anew"
            )
