"""The on-disk format of tokenized text: memory-mapped shards and one manifest.

A corpus is a folder. A shard is four ``.npy`` files, or five:

- ``NNNNN.tokens`` uint16 [T] (uint32 for a vocabulary beyond 65,536): all sentences end to end,
  without special tokens;
- ``NNNNN.sentences`` int64 [S + 1]: offsets of the sentences among the tokens;
- ``NNNNN.documents`` int64 [D + 1]: offsets of the documents among the sentences;
- ``NNNNN.languages`` uint16 [D];
- ``NNNNN.salient`` uint8 [T], if salient spans are marked: 1 for a span's first token, 2 for
  its others, else 0.

``words.npy`` bool [V] marks the tokens that begin a word; ``tokenizer/`` holds the tokenizer.
``manifest.json``, written last, holds the counts and SHA-256 sums of all files.
"""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CorpusError, TokenIdError
from encoder_engine.files import PendingFile, file_sha256, write_atomically, writing
from encoder_engine.json_values import read_value

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
SALIENT = "salient"
_SHARD_NAME = re.compile(r"\d{5,}")


class Document(NamedTuple):
    """One text: the token ids of its sentences, and the index of its language.

    ``salient``: the marks of each sentence's tokens, uint8; None: spans are not marked.
    """

    sentences: Sequence[npt.NDArray[np.integer[Any]]]
    language: int = 0
    salient: Sequence[npt.NDArray[np.uint8]] | None = None


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The vocabulary of a corpus: size, special ids, and a SHA-256 of the tokenizer."""

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
    """What the manifest says of a shard; ``sha256``: file digests by part, such as ``tokens``."""

    name: str
    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: dict[str, str]

    def __post_init__(self) -> None:
        if not _SHARD_NAME.fullmatch(self.name):
            raise CorpusError(f"a shard is named {self.name!r}, expected a number of five digits")
        for name in ("num_documents", "num_sentences", "num_tokens"):
            value = getattr(self, name)
            if value < 0:
                raise CorpusError(f"shard {self.name}: {name} must be a count, got {value!r}")
        if self.sha256.keys() not in (set(PARTS), {*PARTS, SALIENT}):
            raise CorpusError(
                f"shard {self.name}: sha256 must name {', '.join(PARTS)}, and may name {SALIENT}"
            )


def write_shard(
    directory: Path, number: int, documents: Sequence[Document], vocabulary: Vocabulary
) -> ShardEntry:
    """Write the files of shard ``number``, each whole or not at all; return its manifest entry.

    Older files of this number are replaced.

    Empty sentences and documents are left out. Raises :class:`TokenIdError` for an id outside the
    vocabulary, naming the document; :class:`CorpusError` where only some documents have salient
    spans; and :class:`OutputError` where a file cannot be written.
    """
    sentences: list[npt.NDArray[np.integer[Any]]] = []
    document_ends, languages = [0], []
    for document in documents:
        kept = [sentence for sentence in document.sentences if len(sentence)]
        if not kept:
            continue
        sentences += kept
        document_ends.append(len(sentences))
        languages.append(document.language)
    tokens = np.concatenate(sentences) if sentences else np.zeros(0, np.int32)
    if len(tokens) and (tokens.min() < 0 or tokens.max() >= vocabulary.size):
        _refuse_ids(documents, vocabulary)
    marks = _join_marks(documents)
    kind = np.uint16 if vocabulary.size <= 2**16 else np.uint32
    sizes = np.fromiter((len(sentence) for sentence in sentences), np.int64, len(sentences))
    arrays: dict[str, npt.NDArray[Any]] = {
        "tokens": tokens.astype(kind),
        "sentences": np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        "documents": np.asarray(document_ends, np.int64),
        "languages": np.asarray(languages, np.uint16),
    }
    if marks is not None:
        arrays[SALIENT] = marks
    name = f"{number:05d}"
    return ShardEntry(
        name=name,
        num_documents=len(languages),
        num_sentences=len(sentences),
        num_tokens=len(arrays["tokens"]),
        sha256={
            part: _write_array(directory / f"{name}.{part}.npy", array)
            for part, array in arrays.items()
        },
    )


def _join_marks(documents: Sequence[Document]) -> npt.NDArray[np.uint8] | None:
    """Return the salient marks of all tokens, uint8 [T]; None where no document has any."""
    marked = [document.salient is not None for document in documents]
    if not any(marked):
        return None
    if not all(marked):
        raise CorpusError(
            f"document {marked.index(False)} has no salience marks, others have; mark all or none"
        )
    parts = [np.zeros(0, np.uint8)]
    for place, document in enumerate(documents):
        assert document.salient is not None
        if [*map(len, document.salient)] != [*map(len, document.sentences)]:
            raise CorpusError(f"document {place} needs exactly one salience mark for each token")
        parts += document.salient
    return np.concatenate(parts)


def _refuse_ids(documents: Sequence[Document], vocabulary: Vocabulary) -> None:
    """Raise :class:`TokenIdError` for the first document with an id outside the vocabulary."""
    for place, document in enumerate(documents):
        if not len(document.sentences):
            continue
        ids = np.concatenate(document.sentences)
        if len(ids) and (ids.min() < 0 or ids.max() >= vocabulary.size):
            raise TokenIdError(
                f"document {place} has a token outside 0..{vocabulary.size - 1}: {ids.min()} to "
                f"{ids.max()}; it was tokenized by another tokenizer",
                row=place,
            )


def _write_array(path: Path, array: npt.NDArray[Any]) -> str:
    """Write an array as a ``.npy`` file, and return the file's SHA-256."""
    pending = PendingFile(path, overwrite=True)
    try:
        with writing(path):
            # As np.save does, whose last bytes a full disk may lose without an error.
            header = np.lib.format.header_data_from_array_1_0(array)
            np.lib.format.write_array_header_1_0(pending.stream, header)
            pending.stream.write(np.ascontiguousarray(array).data)
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
    """Write the manifest of a corpus whose shards are written, and return the opened corpus.

    ``word_starts`` bool [V]: the tokens that begin a word. ``languages``: the names of the
    languages, by index.
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
    return Corpus.open(directory, verify=False)


class Shard:
    """The memory-mapped arrays of a shard: pages that are not read take no memory."""

    def __init__(self, directory: Path, entry: ShardEntry, vocabulary: Vocabulary) -> None:
        self.entry = entry
        loaded = {part: _map(directory / f"{entry.name}.{part}.npy") for part in entry.sha256}
        self.tokens: Tokens = loaded["tokens"]
        self.sentences: Offsets = loaded["sentences"]
        self.documents: Offsets = loaded["documents"]
        self.languages: npt.NDArray[np.uint16] = loaded["languages"]
        self.salient: npt.NDArray[np.uint8] | None = loaded.get(SALIENT)
        if self.salient is not None and self.salient.shape != self.tokens.shape:
            raise CorpusError(
                f"shard {entry.name} in {directory} has {len(self.salient)} salience marks for "
                f"{len(self.tokens)} tokens; prepare the corpus again"
            )
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
                f"shard {entry.name} in {directory} does not match the manifest: found {found}, "
                f"expected {expected}; prepare the corpus again"
            )

    @cached_property
    def document_starts(self) -> Offsets:
        """The first token of each document, then the shard's number of tokens: int64 [D + 1]."""
        starts: Offsets = self.sentences[self.documents]
        return starts

    def check(self, vocabulary: Vocabulary, num_languages: int) -> None:
        """Read the whole shard; raise :class:`CorpusError` for ids or offsets out of range."""
        name = self.entry.name
        for part, bounds in (("sentences", self.sentences), ("documents", self.documents)):
            falling = np.flatnonzero(np.diff(bounds) <= 0)
            if bounds[0] != 0 or len(falling):
                place = int(falling[0]) if len(falling) else 0
                raise CorpusError(
                    f"shard {name}: the offsets of {part} must ascend from 0; offset {place} is "
                    f"{bounds[place]}, the next {bounds[min(place + 1, len(bounds) - 1)]}; prepare "
                    "the corpus again"
                )
        highest = int(self.tokens.max(initial=0))
        if highest >= vocabulary.size:
            raise CorpusError(
                f"shard {name} has token {highest}, the vocabulary {vocabulary.size} tokens; "
                "prepare the corpus again"
            )
        if self.salient is not None and int(self.salient.max(initial=0)) > 2:
            raise CorpusError(
                f"shard {name} has the salience mark {self.salient.max()}, expected 0, 1 or 2; "
                "prepare the corpus again"
            )
        if int(self.languages.max(initial=0)) >= max(num_languages, 1):
            raise CorpusError(
                f"shard {name} has language {self.languages.max()}, the manifest names "
                f"{num_languages}; prepare the corpus again"
            )


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise CorpusError(f"{path} is missing; copy the whole corpus") from None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} is not a whole .npy file ({error}); copy it again") from error
    if array.ndim != 1 or (array.dtype == np.int64 and len(array) == 0):
        raise CorpusError(
            f"{path} holds {array.dtype} {list(array.shape)}, expected an array of the corpus "
            "format"
        )
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """An open corpus: its shards, its vocabulary, and the tokens that begin a word, bool [V]."""

    directory: Path
    shards: tuple[Shard, ...]
    vocabulary: Vocabulary
    word_starts: npt.NDArray[np.bool_]
    languages: tuple[str, ...]

    @classmethod
    def open(cls, directory: Path, *, verify: bool = True) -> Corpus:
        """Open a corpus, and compare every file with its SHA-256 and the ranges of the format.

        ``verify=False`` skips the comparison, which reads the whole corpus once. Raises
        :class:`CorpusError` for a missing or damaged file, and for a folder that is no corpus.
        """
        path = directory / MANIFEST
        manifest = read_value(path, CorpusError, mend="; prepare the corpus again")
        manifest.get("format").one_of({FORMAT: FORMAT})
        vocabulary: Vocabulary = manifest.get("vocabulary").read_as(Vocabulary)
        entries = [entry.read_as(ShardEntry) for entry in manifest.get("shards").items()]
        languages: tuple[str, ...] = manifest.get("languages").read_as(tuple[str, ...])
        words = manifest.get("words").string()
        if verify:
            recorded = {
                f"{entry.name}.{part}.npy": entry.sha256[part]
                for entry in entries
                for part in entry.sha256
            }
            _verify(directory, {WORDS: words, **recorded})
        shards = tuple(Shard(directory, entry, vocabulary) for entry in entries)
        word_starts = _map(directory / WORDS)
        if word_starts.shape != (vocabulary.size,) or word_starts.dtype != np.bool_:
            raise CorpusError(
                f"{directory / WORDS} must be bool [{vocabulary.size}], got {word_starts.dtype} "
                f"{list(word_starts.shape)}; prepare the corpus again"
            )
        if verify:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda shard: shard.check(vocabulary, len(languages)), shards))
        return cls(
            directory=directory,
            shards=shards,
            vocabulary=vocabulary,
            word_starts=word_starts,
            languages=languages,
        )

    @property
    def has_salient(self) -> bool:
        """Return whether salient spans are marked in all shards."""
        return bool(self.shards) and all(shard.salient is not None for shard in self.shards)

    @property
    def num_documents(self) -> int:
        """The number of documents in all shards."""
        return sum(shard.entry.num_documents for shard in self.shards)

    @property
    def num_sentences(self) -> int:
        """The number of sentences in all shards."""
        return sum(shard.entry.num_sentences for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        """The number of tokens in all shards, without special tokens."""
        return sum(shard.entry.num_tokens for shard in self.shards)


def _verify(directory: Path, expected: dict[str, str]) -> None:
    """Compare files with their SHA-256, by name in ``expected``, in several threads.

    Hashing releases the GIL.
    """

    def compare(name: str) -> None:
        path = directory / name
        try:
            found = file_sha256(path)
        except FileNotFoundError:
            raise CorpusError(f"{path} is missing; copy the whole corpus") from None
        except OSError as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror}") from error
        if found != expected[name]:
            raise CorpusError(
                f"{path} has SHA-256 {found}, the manifest says {expected[name]}; the file is "
                "damaged: copy it again or prepare the corpus anew"
            )

    with ThreadPoolExecutor() as pool:
        list(pool.map(compare, expected))
