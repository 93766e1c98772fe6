"""Encodes with Hugging Face tokenizers ("the library") what the C++ encoders do not implement.

The library's tokenizer is built once and never changed. It has no template, truncation or padding,
because their switches are state that threads would share. It returns all tokens of a text;
``library_rows.py`` lays out the rows.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import (
    InputError,
    MissingDependencyError,
    TextError,
    TokenizerFileError,
)
from encoder_engine.text.byte_level import BYTE_LETTERS
from encoder_engine.text.encoders.library_rows import RowLayout, Tokens
from encoder_engine.text.encoders.library_texts import check_batch, check_text
from encoder_engine.text.spec.library import LibraryDecoderSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from encoder_engine.text.arrays import BatchArrays, IntArray
    from encoder_engine.text.encoders.protocols import EncodeRequest
    from encoder_engine.text.spec.library import LibrarySpec
    from encoder_engine.text.spec.tokenizer import DecoderSpec, TokenizerSpec

__all__ = ["LibraryEncoder", "LibraryJoiner", "LibraryNormalizer"]

# Texts that the library encodes at once: its results are objects of some hundred bytes a token.
CHUNK = 256
# Tokens whose white space is remembered.
MOST_KNOWN = 1 << 18
# Characters with the property White_Space, and the space of byte-level vocabularies.
SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u0120").union(
    map(chr, range(0x2000, 0x200B))
)


class LibraryEncoder:
    """Encodes texts with Hugging Face tokenizers; has the methods of ``_native.BatchEncoder``.

    Thread-safe.
    """

    def __init__(self, spec: TokenizerSpec, model: LibrarySpec) -> None:
        self._spec = spec
        flags = ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
        added = [{flag: getattr(token, flag) for flag in flags} for token in spec.added_tokens]
        self._tokenizer = _build(model, added, spec.decoder)
        self._trim = spec.trim
        self._blanks: dict[str, tuple[int, int]] = {}

    def encode_batch(
        self, texts: object, pairs: object | None, request: EncodeRequest, /
    ) -> BatchArrays:
        """Encode texts or pairs into packed rows of token ids, as the C++ encoder does."""
        paired = pairs is not None
        words, with_spans = request.words, request.with_spans
        firsts = check_batch(texts, "first text" if paired else "text", words=words)
        seconds = check_batch(pairs, "second text", words=words) if paired else None
        template = self._spec.pair if paired else self._spec.single
        layout = RowLayout(template=template, paired=paired, request=request, trim=self._trim)
        alone = request.num_threads == 1
        tokenize = partial(self._tokens, with_spans=with_spans, words=words, alone=alone)
        rows = tokenize(firsts, "first text" if paired else "text")
        if seconds is None:
            for first in rows:
                layout.add(first, None)
        else:
            for first, second in zip(rows, tokenize(seconds, "second text"), strict=True):
                layout.add(first, second)
        return layout.arrays()

    def encode(self, text: str, add_special_tokens: bool, /) -> IntArray:
        """Encode one text; return its token ids, int32."""
        check_text(text, "the text", None)
        try:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            if not _is_failure(error):
                raise
            raise _refused(error, "the text", None) from error
        pieces = [p for p in self._spec.single if add_special_tokens or p.kind != "special"]
        ids = [n for p in pieces for n in (p.ids if p.kind == "special" else ids)]
        return np.asarray(ids, dtype=np.int32)

    def _tokens(
        self, texts: Sequence[Any], what: str, *, with_spans: bool, words: bool, alone: bool
    ) -> Iterator[Tokens]:
        """Yield the tokens of each text, without truncation and special tokens.

        ``alone``: pass one text at a time, which is encoded in the calling thread.
        """
        tokenizer = self._tokenizer
        # Version 1.0 has one method, which gives ids alone.
        fast = getattr(tokenizer, "encode_batch_fast", None)
        if fast is None and (with_spans or words):
            raise InputError(
                "offsets and lists of words need tokenizers below 1.0, whose later versions give "
                "neither; install it with: pip install 'tokenizers<1'"
            )
        kind = {} if fast is None else {"is_pretokenized": words}
        method = tokenizer.encode_batch if with_spans or fast is None else fast
        encode = partial(method, add_special_tokens=False, **kind)
        # The library spreads batches over its own threads, but never a single text.
        size = 1 if alone else CHUNK
        for start in range(0, len(texts), size):
            group = list(texts[start : start + size])
            try:
                encodings = encode(group)
            except BaseException as error:
                if not _is_failure(error):
                    raise
                row = start + _first_refused(encode, group)
                raise _refused(error, f"{what} at row {row}", row) from error
            for found in encodings:
                yield self._tokens_of(found, with_spans=with_spans)

    def _tokens_of(self, found: Any, *, with_spans: bool) -> Tokens:
        ids = np.asarray(found.ids, dtype=np.int32)
        if not with_spans:
            return Tokens(ids)
        words = [-1 if word is None else word for word in found.word_ids]
        blanks = None
        if self._trim is not None:
            # Tokens as they were found: the form of an added token depends on the text.
            known = self._blanks
            counted = [known.get(token) or _count_blanks(known, token) for token in found.tokens]
            blanks = np.asarray(counted, dtype=np.int32).reshape(-1, 2)
        spans = np.asarray(found.offsets, dtype=np.int32).reshape(-1, 2)
        return Tokens(ids, spans, np.asarray(words, dtype=np.int32), blanks)


class LibraryNormalizer:
    """Normalizes texts by a ``normalizer`` that Hugging Face tokenizers runs."""

    def __init__(self, model: LibrarySpec) -> None:
        # Bytes that are encoded and decoded again: version 1.0 has no normalizer of its own.
        level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
        level["trim_offsets"] = False
        letters = {letter: number for number, letter in enumerate(BYTE_LETTERS)}
        members = {"normalizer": model.normalizer, "pre_tokenizer": level, "decoder": level}
        members["model"] = {"type": "BPE", "vocab": letters, "merges": []}
        self._bytes = None if model.normalizer == "null" else _from_json(members, model.reason)

    def normalize(self, text: str) -> str:
        """Return a text in its normalized form."""
        if self._bytes is None:
            return text
        ids = self._bytes.encode(text, add_special_tokens=False).ids
        normalized: str = self._bytes.decode(ids)
        return normalized


class LibraryJoiner:
    """Joins tokens to a text by a ``decoder`` that Hugging Face tokenizers runs."""

    def __init__(self, spec: LibraryDecoderSpec) -> None:
        self._spec = spec
        self._decoder = getattr(self._build({"": 0}), "decoder", None)

    def _build(self, vocab: dict[str, int]) -> Any:
        model = {"type": "WordLevel", "vocab": vocab, "unk_token": ""}
        return _from_json({"model": model, "decoder": self._spec.decoder})

    def join(self, tokens: Sequence[str]) -> str:
        """Join the tokens of one text; raises :class:`InputError` if the decoder fails on them."""
        try:
            if self._decoder is not None:
                text: str = self._decoder.decode(list(tokens))
            else:  # version 1.0 decodes ids alone
                vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
                text = self._build(vocab).decode([vocab[token] for token in tokens])
        except BaseException as error:
            if not _is_failure(error):
                raise
            raise InputError(
                f"the library tokenizers fails to decode these tokens: {error}; leave its decoder "
                "out of tokenizer.json, or decode other ids"
            ) from error
        return text


def _is_failure(error: BaseException) -> bool:
    """Return whether Hugging Face tokenizers failed on a text: by a panic, or a bare Exception."""
    return type(error).__name__ == "PanicException" or type(error) is Exception


def _refused(error: BaseException, where: str, row: int | None) -> TextError:
    """Make the error for a text on which Hugging Face tokenizers fails."""
    return TextError(
        f"{where} makes the library tokenizers fail: {error}; change the text, or in "
        "tokenizer.json the added tokens that it holds",
        row=row,
    )


def _first_refused(encode: Callable[[list[Any]], Any], texts: list[Any]) -> int:
    """Return the index of the first text on which Hugging Face tokenizers fails by itself."""
    for index, text in enumerate(texts):
        try:
            encode([text])
        except BaseException as error:
            if not _is_failure(error):
                raise
            return index
    return 0


def _count_blanks(known: dict[str, tuple[int, int]], token: str) -> tuple[int, int]:
    """Count white space at a token's start and end; byte-level tokens write a space as U+0120."""
    leading = next((i for i, c in enumerate(token) if c not in SPACES), len(token))
    trailing = next((i for i, c in enumerate(reversed(token)) if c not in SPACES), len(token))
    if len(known) < MOST_KNOWN:
        known[token] = leading, trailing
    return leading, trailing


def _build(model: LibrarySpec, added: list[dict[str, Any]], decoder: DecoderSpec | None) -> Any:
    return _from_json(
        {
            "added_tokens": added,
            "normalizer": model.normalizer,
            "pre_tokenizer": model.pre_tokenizer,
            "model": model.model,
            "decoder": decoder.decoder if isinstance(decoder, LibraryDecoderSpec) else None,
        },
        model.reason,
    )


def _from_json(members: dict[str, Any], reason: str = "its decoder is the library's") -> Any:
    """Build a Hugging Face tokenizer from members of a tokenizer.json, as values or as JSON."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependencyError(
            f"{reason}: the tokenizer", library="tokenizers", extra="bpe"
        ) from error
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder"))
    parts = {k: json.loads(v) if isinstance(v, str) else v for k, v in members.items()}
    top = {"version": "1.0", "added_tokens": [], "post_processor": None, **nothing, **parts}
    try:
        if hasattr(Tokenizer, "from_str"):
            return Tokenizer.from_str(json.dumps(top))
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:  # version 1.0 reads files alone
            path = Path(folder, "tokenizer.json")
            path.write_text(json.dumps(top), encoding="utf-8")
            return Tokenizer.from_file(str(path))
    except BaseException as error:
        if not _is_failure(error):
            raise
        raise TokenizerFileError(
            f"{reason}, and the library tokenizers refuses the file: {error}"
        ) from error
