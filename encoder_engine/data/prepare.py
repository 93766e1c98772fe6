"""Prepares a corpus from texts: splits sentences, tokenizes, writes shards; resumable."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.data.salient import Span, clip_spans, find_salient, mark_tokens, merge_spans
from encoder_engine.data.sentences import encode_sentences
from encoder_engine.data.shards import (
    TOKENIZER,
    Document,
    ShardEntry,
    Vocabulary,
    write_corpus,
    write_shard,
)
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import CorpusError
from encoder_engine.files import (
    partial_path,
    sync_directory,
    write_atomically,
    writing,
)
from encoder_engine.inputs.digest import RowsDigest
from encoder_engine.json_values import read_value
from encoder_engine.locks import LOCK_NAME
from encoder_engine.records import (
    Difference,
    describe_changes,
    locked_folder,
    note_resumed,
    refuse_changes,
)
from encoder_engine.text import Tokenizer
from encoder_engine.text.encoders.library_texts import check_text
from encoder_engine.text.fingerprint import tokenizer_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Prepared", "Text", "prepare", "read_vocabulary", "word_starts"]

PROGRESS = "progress.json"
# Raised where the same texts become other tokens: shards of two versions do not mix.
_VERSION = 3
# Raised where find_salient finds other spans.
_SALIENT_VERSION = 2
SHARD_TOKENS = 2**26
# The marks of SentencePiece and of byte-level BPE in front of a word.
WORD_MARKS = ("\u2581", "\u0120")
_ADVICE = "name an empty directory, delete this one, or go on with the former settings"
# Texts in one call of the tokenizer.
_BATCH_TEXTS = 512


class Text(NamedTuple):
    """A document; ``language``: its language's index; ``salient``: character ranges to mark."""

    text: str
    language: int = 0
    salient: tuple[Span, ...] | None = None


@dataclass(kw_only=True)
class Prepared:
    """The counts of what :func:`prepare` did; ``resumed_texts``: those an earlier run had read.

    ``used_tokens``: how many tokens of the vocabulary occur.
    """

    texts: int = 0
    resumed_texts: int = 0
    sentences: int = 0
    tokens: int = 0
    characters: int = 0
    used_tokens: int = 0
    seconds: float = 0.0
    shards: list[ShardEntry] = field(default_factory=list)


def read_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the size, special token ids and fingerprint of a tokenizer's vocabulary.

    Raises :class:`CorpusError` if the [CLS], [SEP], [MASK] or [PAD] token is missing.
    """
    found = {
        "cls_id": tokenizer.cls_token_id,
        "sep_id": tokenizer.sep_token_id,
        "mask_id": tokenizer.mask_token_id,
        "pad_id": tokenizer.pad_token_id,
    }
    missing = [name.removesuffix("_id") for name, value in found.items() if value is None]
    if missing:
        raise CorpusError(
            f"the tokenizer has no {', '.join(missing)} token; masked language modelling needs all "
            "of cls, sep, mask and pad: choose another tokenizer, or train one"
        )
    ids = {name: value for name, value in found.items() if value is not None}
    fingerprint = tokenizer_fingerprint(tokenizer)
    return Vocabulary(size=tokenizer.vocab_size, fingerprint=fingerprint, **ids)


def word_starts(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return whether each token of a vocabulary begins a word, bool [V], by its marks.

    WordPiece marks the continuation of a word (``##ing``); SentencePiece and byte-level BPE mark
    its beginning. Raises :class:`CorpusError` for a vocabulary without marks.
    """
    tokens = [tokenizer.id_to_token(number) or "" for number in range(tokenizer.vocab_size)]
    prefix = getattr(tokenizer.spec.model, "continuing_subword_prefix", None)
    if prefix:
        found = np.array([not token.startswith(prefix) for token in tokens], np.bool_)
    else:
        # One mark alone: in SentencePiece, byte-level BPE's mark is a letter of Maltese.
        mark = next((m for m in WORD_MARKS if any(t.startswith(m) for t in tokens)), None)
        if mark is None:
            raise CorpusError(
                f"no token begins with {' or '.join(map(repr, WORD_MARKS))}, so nothing says where "
                "words begin"
            )
        found = np.array([token.startswith(mark) for token in tokens], np.bool_)
    for added in tokenizer.spec.added_tokens:
        found[added.id] = True
    return found


def prepare(
    texts: Iterable[Text],
    tokenizer: Tokenizer | Callable[[], Tokenizer],
    directory: Path,
    *,
    source: str,
    languages: Sequence[str] = (),
    shard_tokens: int = SHARD_TOKENS,
    salient: bool = False,
    watch: Callable[[Prepared], None] = lambda _done: None,
) -> Prepared:
    """Tokenize texts into a corpus in ``directory``; resumes an interrupted run.

    Every text is a document; empty ones are left out. Texts are tokenized as a whole, so that a
    byte-level vocabulary keeps the white space between sentences. A shard is written, whole or not
    at all, once ``shard_tokens`` tokens are read. Run again with the same arguments, an interrupted
    run continues after its last shard and ends in the same bytes.

    ``tokenizer``: is saved with the corpus; if it is a function, the function is called once.
    ``source``: describes the texts, and the tokenizer if a function makes it.
    ``salient``: mark salient spans: those given with a text, or else the names and dates in it.
    ``watch``: called after every batch.

    Raises :class:`CorpusError` where source, tokenizer, languages or ``shard_tokens`` differ from
    those of the shards in the directory, where the texts of these shards have changed, where there
    is no text, and for a language without a name; :class:`TextError` for a value that is no text;
    :class:`LockedError` where another run is at work in the directory.
    """
    settings = {
        "source": source,
        "tokenizer": read_vocabulary(tokenizer).fingerprint
        if isinstance(tokenizer, Tokenizer)
        else "made",
        "languages": list(languages),
        "shard_tokens": shard_tokens,
        "version": _VERSION,
        **({"salient": _SALIENT_VERSION} if salient else {}),
    }
    with locked_folder(directory):
        recorded = _begin(directory, settings)
        kept = _keep_tokenizer(directory / TOKENIZER, tokenizer)
        done, used = _resume(recorded, kept.vocab_size)
        if done.texts:
            note_resumed(f"{done.texts:,} texts", directory / PROGRESS)
        run = _Run(directory, settings, done, used, RowsDigest())
        reading = _checked(texts, len(languages))
        for batch in _batches(islice(reading, done.texts)):
            run.digest(batch)
        # A corpus begun before digests were recorded is compared by its source alone.
        if run.read.hexdigest() != recorded.get("texts_sha256", run.read.hexdigest()):
            change = f"its first {done.texts:,} texts are others now"
            refuse_changes(directory, [change], _ADVICE, CorpusError)
        return _prepare(reading, kept, run, watch)


class _Run(NamedTuple):
    """The state of a run of :func:`prepare`.

    ``done``: its counts. ``used``: the tokens that occurred, bool [V]. ``read``: a digest of the
    texts.
    """

    directory: Path
    settings: dict[str, Any]
    done: Prepared
    used: npt.NDArray[np.bool_]
    read: RowsDigest

    def digest(self, batch: Sequence[Text]) -> None:
        """Add texts to the digest, by which changed texts are noticed when a run resumes."""
        rest = [f"{text.language} {text.salient}" for text in batch]
        self.read.add([text.text for text in batch], rest)

    def write(self, documents: list[Document], vocabulary: Vocabulary) -> None:
        """Write a shard of documents; then record it and the number of texts read so far."""
        entry = write_shard(self.directory, len(self.done.shards), documents, vocabulary)
        self.done.shards.append(entry)
        self.done.tokens += entry.num_tokens
        self.note()

    def note(self) -> dict[str, Any]:
        """Write the progress record of the run with the present counts, and return it."""
        recorded = {
            "begun": self.settings,
            "done": asdict(self.done) | {"resumed_texts": 0, "seconds": 0.0},
            "used": np.flatnonzero(self.used).tolist(),
            "texts_sha256": self.read.hexdigest(),
        }
        write_atomically(self.directory / PROGRESS, json.dumps(recorded).encode())
        return recorded


def _prepare(
    reading: Iterator[Text], tokenizer: Tokenizer, run: _Run, watch: Callable[[Prepared], None]
) -> Prepared:
    started, done, settings = time.perf_counter(), run.done, run.settings
    vocabulary = read_vocabulary(tokenizer)
    pending: list[Document] = []
    held = 0
    for batch in _batches(reading):
        run.digest(batch)
        documents, ids = _tokenize(tokenizer, batch, salient="salient" in settings)
        run.used[ids] = True
        held += len(ids)
        pending += documents
        done.texts += len(batch)
        done.characters += sum(len(text.text) for text in batch)
        # A sentence of characters that the tokenizer drops has no token, and is not written.
        done.sentences += sum(len(ids) > 0 for document in documents for ids in document.sentences)
        if held >= settings["shard_tokens"]:
            run.write(pending, vocabulary)
            pending, held = [], 0
        done.used_tokens = int(run.used.sum())
        done.seconds = time.perf_counter() - started
        watch(done)
    if pending:
        run.write(pending, vocabulary)
    if not done.shards:
        raise CorpusError(f"none of the {done.texts} texts for {run.directory} holds a token")
    done.used_tokens = int(run.used.sum())
    starts = word_starts(tokenizer)
    write_corpus(run.directory, done.shards, vocabulary, starts, settings["languages"])
    done.seconds = time.perf_counter() - started
    return done


def _checked(texts: Iterable[Text], num_languages: int) -> Iterator[Text]:
    """Yield the texts; raise an error for a value that is no text, or a language without a name."""
    for number, text in enumerate(texts):
        check_text(text.text, f"text {number}", number)
        # Without names, all texts are of language 0.
        if not 0 <= text.language < max(num_languages, 1):
            raise CorpusError(
                f"text {number} has language {text.language}, and languages has {num_languages} "
                "names; name every language"
            )
        yield text


def _batches(texts: Iterator[Text]) -> Iterator[list[Text]]:
    while batch := list(islice(texts, _BATCH_TEXTS)):
        yield batch


def _tokenize(
    tokenizer: Tokenizer, batch: list[Text], *, salient: bool
) -> tuple[list[Document], npt.NDArray[np.int32]]:
    """Return the batch's documents that have a token, and all their token ids concatenated."""
    documents, ids = [], [np.zeros(0, np.int32)]
    encoded = encode_sentences(tokenizer, [text.text for text in batch])
    for text, tokens in zip(batch, encoded, strict=True):
        # White space alone is no document, though a vocabulary of bytes has tokens for it.
        if not tokens.sentences or not len(tokens.ids_T):
            continue
        marks = None
        if salient:
            marks = tokens.split(mark_tokens(tokens.offsets_T2, _spans(text, tokens.sentences)))
        documents.append(Document(tokens.split(tokens.ids_T), text.language, marks))
        ids.append(tokens.ids_T)
    return documents, np.concatenate(ids)


def _spans(text: Text, sentences: list[Span]) -> list[Span]:
    """Return a text's salient spans, given or found, cut at the borders of sentences."""
    if text.salient is not None:
        return clip_spans(merge_spans(list(text.salient)), sentences)
    return [
        (begin + first, begin + last)
        for begin, end in sentences
        for first, last in find_salient(text.text[begin:end])
    ]


def _begin(directory: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the progress record of an earlier run; without one, write and return a new run's."""
    path = directory / PROGRESS
    if path.exists():
        recorded = read_value(path, CorpusError, mend="; prepare the corpus again")
        changes = _changes(recorded.get("begun").object(), settings)
        if not changes:
            return recorded.object()
        if recorded.get("done").get("shards").items():
            refuse_changes(directory, changes, _ADVICE, CorpusError)
        # Without a shard there is nothing to mix up: the folder starts anew.
        shutil.rmtree(directory / TOKENIZER, ignore_errors=True)
    elif any(p.name != LOCK_NAME and p.suffix != ".partial" for p in directory.iterdir()):
        raise CorpusError(
            f"{directory} is not empty, and no corpus was started in it; name an empty directory"
        )
    return _Run(directory, settings, Prepared(), np.zeros(0, np.bool_), RowsDigest()).note()


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe each setting that differs between two runs; of a source in JSON, each key."""
    return describe_changes(_with_parts(before), _with_parts(now), _describe)


def _describe(change: Difference) -> str:
    name = change.name.removeprefix("source.")
    if name.startswith("inputs."):
        return "the inputs are others, or were changed"
    if name == "version" or (name == "salient" and change.before and change.now):
        return "another version of encoder-engine began it, and cut or tokenized texts otherwise"
    return "the tokenizer is another" if name == "tokenizer" else str(change._replace(name=name))


def _with_parts(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with their ``source`` parsed, if it is JSON."""
    try:
        return {**settings, "source": json.loads(settings["source"])}
    except (KeyError, TypeError, ValueError):
        return settings


def _keep_tokenizer(folder: Path, tokenizer: Tokenizer | Callable[[], Tokenizer]) -> Tokenizer:
    """Save the tokenizer atomically unless an earlier run did; return the saved tokenizer."""
    if not folder.is_dir():
        partial = partial_path(folder)
        shutil.rmtree(partial, ignore_errors=True)
        made = tokenizer if isinstance(tokenizer, Tokenizer) else tokenizer()
        with writing(folder):
            made.save(partial)
            partial.rename(folder)
            sync_directory(folder.parent)
    return tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.from_pretrained(folder)


def _resume(recorded: dict[str, Any], vocab_size: int) -> tuple[Prepared, npt.NDArray[np.bool_]]:
    """Return the counts in a progress record, and which tokens occurred so far, bool [V]."""
    used = np.zeros(vocab_size, np.bool_)
    counts = recorded["done"]
    shards = [ShardEntry(**entry) for entry in counts.pop("shards")]
    used[np.asarray(recorded["used"], np.int64)] = True
    return Prepared(**{**counts, "resumed_texts": counts["texts"]}, shards=shards), used
