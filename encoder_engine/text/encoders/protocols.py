"""Interfaces of text encoders and normalizers, and the arguments that all encoders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from encoder_engine.text.arrays import BatchArrays, IntArray

__all__ = ["BatchEncoder", "EncodeRequest", "EncoderParts", "TextNormalizer"]


class EncodeRequest(NamedTuple):
    """The checked options of one call of ``encode_batch``, in the order of the C++ extension.

    strategy: a number of ``tokenizer.STRATEGIES``; 0 truncates nothing.
    max_length: tokens of a row, template included; read only where ``strategy`` is not 0.
    stride: tokens that a row shares with the overflow row after it.
    overflow: put the tokens beyond ``max_length`` into further rows.
    left: truncate from the left.
    with_spans: return character offsets and word ids.
    words: each text is a list of words.
    num_threads: 0: choose by the size of the batch.
    sampling: alpha, n-best (0: all segmentations) and seed of a random segmentation.
    """

    add_special_tokens: bool
    strategy: int
    max_length: int
    stride: int
    overflow: bool
    left: bool
    with_spans: bool
    words: bool
    num_threads: int
    sampling: tuple[float, int, int] | None


class EncoderParts(NamedTuple):
    """The arguments of a C++ encoder besides its model: added tokens, templates, trimming.

    added: text, id, and the flags single_word, lstrip, rstrip and normalized of each added token.
    single, pair: the templates; each element is a number of ``build.PIECE_KINDS``, and token ids.
    trim: one of ``build.TRIM_NONE``, ``TRIM_ALL`` and ``TRIM_PREFIXED``.
    """

    added: list[tuple[str, int, bool, bool, bool, bool]]
    single: list[tuple[int, list[int]]]
    pair: list[tuple[int, list[int]]]
    trim: int


class TextNormalizer(Protocol):
    """Normalizes text before a model encodes it."""

    def normalize(self, text: str) -> str:
        """Return a text in its normalized form."""


class BatchEncoder(Protocol):
    """Encodes texts for a :class:`Tokenizer`: the methods of ``_native.BatchEncoder``."""

    def encode_batch(
        self, texts: object, pairs: object | None, request: EncodeRequest, /
    ) -> BatchArrays:
        """Encode texts or pairs into packed rows of token ids; see :class:`EncodeRequest`."""

    def encode(self, text: str, add_special_tokens: bool, /) -> IntArray:
        """Encode one text; return its token ids, int32."""
