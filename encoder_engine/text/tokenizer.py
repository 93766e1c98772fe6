"""The public tokenizer: texts in, packed arrays out, and ids back to text.

How it works: a text is searched for added tokens, the parts between them are normalized and cut
into words, and each word is encoded by the model (WordPiece, Unigram or BPE in C++, other models by
Hugging Face tokenizers). On plain text the C++ encoder does all steps in one pass, at most 1,024
characters at a time, and looks words up in a cache, so most words are never matched against the
vocabulary. With ``max_length`` and truncation on the right, text beyond the row is not read. Rows
are truncated, put into the template and packed end to end without padding. Several threads share
the texts of a batch with the GIL released; the result does not depend on the number of threads.
"""

from __future__ import annotations

import operator
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, cast

import numpy as np

from encoder_engine.errors import (
    ConfigError,
    InputError,
    MissingRowsWarning,
    TextError,
    TokenizerFileError,
)
from encoder_engine.text import directory
from encoder_engine.text.arguments import check_integer, sequence_of_texts
from encoder_engine.text.calls.options import RememberedOptions
from encoder_engine.text.calls.tokenizer import CallableTokenizer
from encoder_engine.text.decoding.decoder import Decoder
from encoder_engine.text.encoders.build import build_encoder
from encoder_engine.text.encoders.protocols import EncodeRequest
from encoder_engine.text.encoding import Encoding
from encoder_engine.text.extension import extension
from encoder_engine.text.formats.saving import save
from encoder_engine.text.sampling import UnigramSampling, check_count
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from encoder_engine import _native
    from encoder_engine.inputs.opening import Format
    from encoder_engine.text.arrays import IntArray
    from encoder_engine.text.spec.tokenizer import Side, TokenizerSpec

__all__ = ["Tokenizer"]

# The order of csrc/text/truncation.h.
STRATEGIES = {"do_not_truncate": 0, "longest_first": 1, "only_first": 2, "only_second": 3}


class Tokenizer(CallableTokenizer):
    """A tokenizer: immutable, shared freely between threads, forked and pickled.

    Ids and character offsets equal those of Hugging Face tokenizers 0.23 on the same files;
    docs/tokenizers.md lists the few deliberate differences.
    """

    def __init__(self, spec: TokenizerSpec, num_rows: int | None = None) -> None:
        self._spec = spec
        # The rows of a model's table, where it has fewer than the tokenizer has tokens.
        self._num_rows = num_rows
        self._native = build_encoder(spec)
        self._decoder = Decoder(spec)
        self._vocab_size = spec.vocab_size
        self._ints = extension().IntTable(self._vocab_size)
        self._added = {token.content: token.id for token in spec.added_tokens}
        self._pad_id = self.pad_token_id
        self._call_options = RememberedOptions()
        self._pad_type_id = 0 if spec.padding is None else spec.padding.pad_type_id

    @classmethod
    def from_pretrained(
        cls, path: str | PathLike[str], *, lowercase: bool | None = None
    ) -> Tokenizer:
        """Read a tokenizer.json, a vocab.txt, or a directory that holds either or both.

        SentencePiece's .model files, and a folder's vocab.json with merges.txt, are read as well.

        Args:
            path: the file or directory.
            lowercase: whether to lower-case texts; needed for a vocab.txt without a
                tokenizer_config.json, because vocab.txt does not state it.

        Raises:
            TokenizerFileError: the files are missing, malformed, contradict each other, or ask for
                a feature that is not supported; the message names it.
            ChecksumError: a file differs from the SHA-256 recorded beside it.
        """
        tokenizer = cls(directory.load(path, lowercase=lowercase))
        tokenizer._check_template(add_special_tokens=True)
        return tokenizer

    def encode_batch(
        self,
        texts: Iterable[str] | Iterable[Sequence[str]],
        pairs: Iterable[str] | Iterable[Sequence[str]] | None = None,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        truncation: str | None = "longest_first",
        stride: int = 0,
        return_offsets: bool = False,
        num_threads: int | None = None,
        *,
        return_overflow: bool | None = None,
        truncation_side: Side | None = None,
        is_split_into_words: bool = False,
        sampling: UnigramSampling | None = None,
    ) -> Encoding:
        """Encode texts, or pairs of texts, into packed rows.

        Args:
            texts: strings, in any iterable; or lists of words, see ``is_split_into_words``.
            pairs: as many second texts, or ``None``.
            add_special_tokens: add the template's tokens.
            max_length: the most tokens of a row, template included; ``None``: no limit. Text beyond
                the row's last token is not read.
            truncation: the text of a pair to cut: ``"longest_first"``, ``"only_first"``,
                ``"only_second"``; ``None`` or ``"do_not_truncate"`` cuts nothing.
            stride: tokens that a row shares with the overflow row after it.
            return_offsets: keep character offsets and word ids.
            num_threads: threads to use; by default chosen by the size of the batch, within
                ``OMP_NUM_THREADS`` and the container's CPU quota.
            return_overflow: put the tokens beyond ``max_length`` into further rows; by default only
                if ``stride`` is above 0.
            truncation_side: cut from the ``"right"`` or the ``"left"``; by default the files'.
            is_split_into_words: each text is a list or tuple of words. Each word is encoded alone,
                ``word_ids`` are indices into the list, and offsets count from the word's start.
            sampling: draw random segmentations, for training; Unigram models only.

        Raises:
            TextError: a value is not a string, has a lone surrogate, or has a token beyond the
                model's embedding table; ``.row`` names it.
            InputError: the other arguments contradict each other.
            TokenizerFileError: the file's template, which special tokens need, cannot be used.
        """
        self._check_template(add_special_tokens=add_special_tokens)
        texts = sequence_of_texts(texts, "texts")
        if pairs is not None:
            pairs = sequence_of_texts(pairs, "pairs")
            if len(pairs) != len(texts):
                raise InputError(f"there are {len(texts)} texts but {len(pairs)} pairs")
        strategy = _strategy(truncation, paired=pairs is not None)
        stride = check_integer(stride, "stride", least=0)
        if max_length is None:
            strategy, limit = 0, 0
        else:
            limit = check_integer(max_length, "max_length", least=0)
        overflow = stride > 0 if return_overflow is None else return_overflow
        template = self._spec.single if pairs is None else self._spec.pair
        if not add_special_tokens:
            template = tuple(piece for piece in template if piece.kind != "special")
        if strategy:
            _check_room(limit, sum(len(piece.ids) for piece in template), stride, overflow)
        elif stride:
            raise InputError(f"stride is {stride}, but without max_length nothing is cut")
        if stride and not overflow:
            raise InputError(
                f"stride is {stride}, but return_overflow=False drops the overflow rows; leave one "
                "of them out"
            )
        side = self._spec.truncation_side if truncation_side is None else truncation_side
        if side not in ("left", "right"):
            raise InputError(f"truncation_side is {side!r}, expected 'left' or 'right'")
        threads = 0 if num_threads is None else check_integer(num_threads, "num_threads", least=1)
        # By position: keywords would add 0.5 us to each call, 5 % of a short sentence's 10 us.
        request = EncodeRequest(
            bool(add_special_tokens),
            strategy,
            limit,
            stride,
            bool(overflow) and strategy != 0,
            side == "left",
            bool(return_offsets),
            bool(is_split_into_words),
            min(threads, 1024),
            None if sampling is None else self._sampling(sampling),
        )
        arrays = self._native.encode_batch(texts, pairs, request)
        ids, cu_seqlens, first_lengths, offsets, word_ids, samples, truncated = arrays
        self._check_rows(ids, cu_seqlens, samples, "text" if pairs is None else "pair")
        return Encoding(
            ids=ids,
            cu_seqlens=cu_seqlens,
            truncated=truncated,
            template=template,
            first_lengths=first_lengths,
            offsets=offsets,
            word_ids=word_ids,
            overflow_to_sample=samples,
            pad_id=self._pad_id,
            pad_type_id=self._pad_type_id,
            vocab_size=self._vocab_size,
            ints=self._ints,
        )

    def encode_files(
        self,
        inputs: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        column: str | None = None,
        input_format: Format | None = None,
        max_characters: int | None = None,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        return_offsets: bool = False,
        num_threads: int | None = None,
    ) -> Iterator[Encoding]:
        """Yield the encodings of the texts of files, in order, of some 16 MiB of text each.

        The rows are those of ``encode_batch`` on the texts. Lines of uncompressed ``.txt`` and
        ``.jsonl`` files are read from the mapped file on all threads, without Python strings; a
        file must not be truncated while it is read.

        Args:
            inputs: files, directories and globs: texts as lines of ``.txt`` or rows of ``.jsonl``,
                ``.csv``, ``.tsv``, ``.parquet`` and ``.arrow``, compressed or not; ``-`` is
                standard input.
            column: the column of the texts, by default ``text``.
            input_format: the format of all inputs, instead of their suffixes.
            max_characters: the most characters of a text; a longer text is an error.
            add_special_tokens: add the template's tokens.
            max_length: the most tokens of a row, template included; ``None``: no limit.
            return_offsets: keep character offsets and word ids.
            num_threads: threads that encode; by default chosen by the size of the texts.

        Raises:
            ReadError: a file cannot be read, or one of its rows is bad: ``RowError``, which names
                file and line.
            TextError: a text has a token beyond the model's embedding table; ``.row`` is its index
                among all texts.
            InputError: the arguments contradict each other.
        """
        # Readers of tables and archives, which a tokenizer of strings does not wait for.
        from encoder_engine.inputs.readers import open_inputs
        from encoder_engine.inputs.text_rows import read_text_rows

        names = [inputs] if isinstance(inputs, str | PathLike) else inputs
        opened = open_inputs(
            [fspath(name) for name in names],
            column=column,
            format=input_format,
            max_characters=max_characters,
        )
        encode = partial(
            self.encode_batch,
            add_special_tokens=add_special_tokens,
            max_length=max_length,
            return_offsets=return_offsets,
            num_threads=num_threads,
        )
        encode([])  # refuses the other arguments before a file is read
        return _encode_rows(read_text_rows(opened), encode)

    def encode(self, text: str, add_special_tokens: bool = True) -> IntArray:
        """Encode one text; returns its ids, int32 ``[n]``. Errors: see :meth:`encode_batch`."""
        # The checks would take half of a short text's time.
        if self._spec.template_fault:
            self._check_template(add_special_tokens=add_special_tokens)
        ids = self._native.encode(text, add_special_tokens)
        if self._num_rows is not None:
            self._check_rows(ids, np.array([0, len(ids)], np.int32), None, "text")
        return ids

    def encode_nbest(
        self, text: str, n: int, add_special_tokens: bool = True
    ) -> list[tuple[IntArray, float]]:
        """Encode one text along each of its ``n`` best segmentations, the best first.

        Returns:
            Pairs of ids, int32, and score: the sum of the log probabilities of the text's pieces.
            There are fewer where the text has fewer segmentations.

        Raises:
            TextError: the text is not a string, or holds a lone surrogate.
            InputError: the model is not Unigram and has one segmentation only; ``n`` is not from 1
                to 1024; or the segmentations of so long a text take too much memory.

        """
        return self._unigram("encode_nbest").encode_nbest(
            text, check_count(n, "n"), bool(add_special_tokens)
        )

    def _check_template(self, *, add_special_tokens: bool) -> None:
        if add_special_tokens and self._spec.template_fault:
            raise TokenizerFileError(self._spec.template_fault)

    def fitted_to(self, num_rows: int) -> Tokenizer:
        """Return a tokenizer for a model whose embedding table has ``num_rows`` rows.

        The returned tokenizer refuses texts with tokens beyond the table, and names their row; a
        warning names these tokens. A tokenizer without such tokens is returned unchanged.

        Raises:
            ConfigError: the template itself has such a token.
        """
        if num_rows >= self._vocab_size:
            return self
        names = [self.id_to_token(number) for number in range(num_rows, self._vocab_size)]
        beyond = [name for name in names if name is not None]
        listed = f"{', '.join(map(repr, beyond[:5]))}{', ...' if len(beyond) > 5 else ''}"
        counted = f"the tokenizer has {self._vocab_size} tokens, the model's table {num_rows}"
        template = (*self._spec.single, *self._spec.pair)
        if any(number >= num_rows for piece in template for number in piece.ids):
            raise ConfigError(
                f"{counted}, and every row has a token beyond it ({listed}); the files belong to "
                "different models"
            )
        if self._num_rows != num_rows:
            warn_caller(
                MissingRowsWarning(
                    f"{counted}: texts with {listed} are refused; if all texts need them, take the "
                    "tokenizer files of this model, or the model that was trained with these",
                    names=beyond,
                )
            )
        fitted = object.__new__(Tokenizer)
        fitted.__dict__.update(self.__dict__, _num_rows=num_rows)
        return fitted

    def _check_rows(
        self, ids: IntArray, cu_seqlens: IntArray, samples: IntArray | None, what: str
    ) -> None:
        """Raise :class:`TextError` for a token that the model's embedding table has no row for."""
        if self._num_rows is None or not len(wrong := np.flatnonzero(ids >= self._num_rows)):
            return
        row = int(np.searchsorted(cu_seqlens, wrong[0], side="right")) - 1
        row = row if samples is None else int(samples[row])
        number = int(ids[wrong[0]])
        raise TextError(
            f"{what} at row {row} has the token {self.id_to_token(number)!r}, whose id {number} "
            f"lies beyond the model's table of {self._num_rows}; leave it out of the text",
            row=row,
        )

    def _sampling(self, sampling: object) -> tuple[float, int, int]:
        """Return alpha, n-best and seed of a :class:`UnigramSampling`, for the extension."""
        if not isinstance(sampling, UnigramSampling):
            kind = type(sampling).__name__
            raise InputError(f"sampling is {kind} {sampling!r}, expected UnigramSampling or None")
        self._unigram("sampling")
        return float(sampling.alpha), sampling.nbest or 0, operator.index(sampling.seed)

    def _unigram(self, feature: str) -> _native.BatchEncoder:
        """Return the C++ encoder; raise :class:`InputError` if the model is not Unigram."""
        model = self._spec.model
        if not isinstance(model, UnigramSpec | SentencePieceSpec):
            raise InputError(
                f"{feature} needs a Unigram model; {model.description} gives a text one "
                "segmentation only"
            )
        return cast("_native.BatchEncoder", self._native)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Decode ids to text.

        Raises:
            TokenIdError: an id is not in the vocabulary.

        """
        return self._decoder.decode(ids, skip_special_tokens=skip_special_tokens)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token; ``None`` where the vocabulary lacks it."""
        added = self._added.get(token)
        return self._spec.model.vocab.get(token) if added is None else added

    def id_to_token(self, token_id: int) -> str | None:
        """Return the token with an id; ``None`` where there is none."""
        return self._decoder.token(token_id)

    @property
    def spec(self) -> TokenizerSpec:
        """The values that the tokenizer is built from."""
        return self._spec

    @property
    def vocab_size(self) -> int:
        """The largest id plus one: the rows that an embedding table needs."""
        return self._vocab_size

    @property
    def unk_token_id(self) -> int | None:
        """Id of the unknown token."""
        return self._special_id(self._spec.special.unk)

    @property
    def cls_token_id(self) -> int | None:
        """Id of the token at the start of a row ([CLS])."""
        return self._special_id(self._spec.special.cls)

    @property
    def sep_token_id(self) -> int | None:
        """Id of the token after a text ([SEP])."""
        return self._special_id(self._spec.special.sep)

    @property
    def pad_token_id(self) -> int | None:
        """Id of the padding token."""
        return self._special_id(self._spec.special.pad)

    @property
    def mask_token_id(self) -> int | None:
        """Id of the mask token."""
        return self._special_id(self._spec.special.mask)

    def _special_id(self, token: str | None) -> int | None:
        return None if token is None else self.token_to_id(token)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write tokenizer.json and its companion files, which ``transformers`` loads as well."""
        save(self._spec, directory)

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[TokenizerSpec, int | None]]:
        return Tokenizer, (self._spec, self._num_rows)

    def __repr__(self) -> str:
        return f"Tokenizer({self._spec.model.description}, {self._vocab_size} tokens)"


def _encode_rows(
    groups: Iterable[_native.TextRows], encode: Callable[..., Encoding]
) -> Iterator[Encoding]:
    """Yield the encoding of each group of texts; an error's row counts the texts of all groups."""
    num_rows = 0
    for rows in groups:
        try:
            encoded = encode(rows)
        except TextError as error:
            if error.row is None:
                raise
            row = num_rows + error.row
            raise TextError(f"behind {num_rows} other texts, {error}", row=row) from None
        num_rows += len(rows)
        yield encoded


def _strategy(truncation: str | None, *, paired: bool) -> int:
    """Return the number of a truncation strategy; raises :class:`InputError` for unknown names."""
    name = "do_not_truncate" if truncation is None else truncation
    if not isinstance(name, str) or name not in STRATEGIES:
        known = ", ".join(repr(known) for known in STRATEGIES)
        raise InputError(f"truncation is {truncation!r}; known are {known} and None")
    if name == "only_second" and not paired:
        raise InputError("truncation='only_second' needs pairs")
    return STRATEGIES[name]


def _check_room(limit: int, num_special: int, stride: int, overflow: bool) -> None:
    """Raise :class:`InputError` if ``limit`` tokens have no room for special tokens and stride."""
    if limit < num_special:
        raise InputError(
            f"max_length is {limit}, but the template alone takes {num_special} tokens"
        )
    room = limit - num_special
    if overflow and stride >= room:
        raise InputError(
            f"stride is {stride}, but a row of max_length {limit} has room for {room} tokens of "
            "text; overflow rows need a smaller stride"
        )
