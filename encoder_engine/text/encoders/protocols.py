"""Interfaces of encoders and normalizers, and the arguments that all encoders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from encoder_engine.text.arrays import BatchArrays, IntArray

__all__ = ["BatchEncoder", "EncoderParts", "TextNormalizer"]


class EncoderParts(NamedTuple):
    """The arguments of every native encoder beside its model."""

    added: list[tuple[str, int, bool, bool, bool, bool]]
    single: list[tuple[int, list[int]]]
    pair: list[tuple[int, list[int]]]
    trim: int


class TextNormalizer(Protocol):
    """Turns text into the form that the model encodes."""

    def normalize(self, text: str) -> str:
        """Normalize a text by itself."""


class BatchEncoder(Protocol):
    """Encodes texts for a :class:`Tokenizer`: the methods of ``_native.BatchEncoder``."""

    def encode_batch(
        self,
        texts: object,
        pairs: object | None,
        add_special_tokens: bool,
        strategy: int,
        max_length: int,
        stride: int,
        overflow: bool,
        left: bool,
        with_spans: bool,
        words: bool,
        num_threads: int,
        /,
    ) -> BatchArrays:
        """Encode a batch."""

    def encode(self, text: str, add_special_tokens: bool, /) -> IntArray:
        """Encode one text."""
