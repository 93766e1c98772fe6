"""The specifications of Unigram tokenizers: a tokenizer.json's, and SentencePiece's own."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.vocabulary import NativePieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "REGEXES",
    "ByteFallbackStep",
    "CharsmapStep",
    "DecoderStep",
    "DecoderSteps",
    "FuseStep",
    "LowercaseStep",
    "MetaspaceSpec",
    "NormalizerStep",
    "PieceKind",
    "PrependStep",
    "ReplaceStep",
    "SentencePieceDecoderSpec",
    "SentencePieceSpec",
    "StripAccentsStep",
    "StripStep",
    "StripTokensStep",
    "UnicodeFormStep",
    "UnigramSpec",
]

# The regular expressions that published files have in a Replace, as runs: of white space or of the
# space alone, of at least so many characters, or one of the last.
REGEXES = {
    " {2,}": (False, 2, ""),
    " +": (False, 1, ""),
    r"\s{2,}": (True, 2, ""),
    r"\s+": (True, 1, ""),
    r"\s{2,}|[\n\r\t]": (True, 2, "\n\r\t"),
}

PieceKind = Literal["normal", "unknown", "control", "user_defined", "unused", "byte"]
PrependScheme = Literal["always", "first", "never"]


@dataclass(frozen=True, kw_only=True)
class CharsmapStep:
    """Applies SentencePiece's compiled rules to graphemes, or where none fits, to characters."""

    charsmap: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ReplaceStep:
    """Replaces every match in a text by ``content``; a ``regex`` must be one of ``REGEXES``."""

    pattern: str
    regex: bool
    content: str


@dataclass(frozen=True, kw_only=True)
class UnicodeFormStep:
    """Normalizes a text to a Unicode form."""

    form: Literal["NFC", "NFD", "NFKC", "NFKD"]


@dataclass(frozen=True, kw_only=True)
class StripAccentsStep:
    """Drops the combining marks of a text, including spacing ones."""


@dataclass(frozen=True, kw_only=True)
class LowercaseStep:
    """Lower-cases each character of a text on its own."""


@dataclass(frozen=True, kw_only=True)
class StripStep:
    """Drops white space at the left or right end of a text, or at both."""

    left: bool
    right: bool


@dataclass(frozen=True, kw_only=True)
class PrependStep:
    """Puts ``prefix`` before a text that is not empty."""

    prefix: str


NormalizerStep: TypeAlias = (
    CharsmapStep
    | ReplaceStep
    | UnicodeFormStep
    | StripAccentsStep
    | LowercaseStep
    | StripStep
    | PrependStep
)


@dataclass(frozen=True, kw_only=True)
class MetaspaceSpec:
    """Replaces spaces of a text by ``replacement``; ``split``: a word starts at each of them."""

    replacement: str
    prepend_scheme: PrependScheme
    split: bool


@dataclass(frozen=True, kw_only=True)
class UnigramSpec:
    """The Unigram model of a tokenizer.json; a piece's index is its id.

    A piece that occurs twice has its last id.
    """

    pieces: Sequence[str] = field(repr=False)
    scores: Sequence[float] = field(repr=False)
    unk_id: int | None
    byte_fallback: bool
    normalizer: tuple[NormalizerStep, ...]
    whitespace_split: bool
    metaspace: MetaspaceSpec | None

    @cached_property
    def vocab(self) -> Mapping[str, int]:
        """The id of each piece, by the piece."""
        return _vocabulary(self.pieces)

    @property
    def num_ids(self) -> int:
        """The number of pieces: the id of the first added token that is not among them."""
        return len(self.pieces)

    @property
    def unk_token(self) -> str | None:
        """The piece that stands for text that the vocabulary cannot spell."""
        return None if self.unk_id is None else self.pieces[self.unk_id]

    @property
    def description(self) -> str:
        """A few words on the tokenizer's model, such as its type, for messages."""
        return "Unigram"

    def lowercased(self) -> UnigramSpec:
        """Return a model that lower-cases texts before it encodes them."""
        if LowercaseStep() in self.normalizer:
            return self
        return replace(self, normalizer=(LowercaseStep(), *self.normalizer))


def _vocabulary(pieces: Sequence[str]) -> Mapping[str, int]:
    if isinstance(pieces, NativePieces):
        return pieces.vocab
    return {piece: number for number, piece in enumerate(pieces)}


@dataclass(frozen=True, kw_only=True)
class SentencePieceSpec:
    """A Unigram model with SentencePiece's own rules; a piece's index is its id.

    ``file``: the bytes of the .model file, for saving.
    """

    file: bytes = field(repr=False)
    pieces: Sequence[str] = field(repr=False)
    scores: Sequence[float] = field(repr=False)  # float32
    kinds: Sequence[PieceKind] = field(repr=False)
    charsmap: bytes = field(repr=False)
    byte_fallback: bool
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool
    whitespace_as_suffix: bool
    unk_surface: str

    @cached_property
    def vocab(self) -> Mapping[str, int]:
        """The id of each piece, by the piece."""
        return _vocabulary(self.pieces)

    @property
    def num_ids(self) -> int:
        """The number of pieces: the id of the first added token that is not among them."""
        return len(self.pieces)

    @property
    def unk_id(self) -> int:
        """The id of the unknown piece, for text that the vocabulary cannot spell."""
        return self.kinds.index("unknown")

    @property
    def unk_token(self) -> str:
        """The piece that stands for text that the vocabulary cannot spell."""
        return self.pieces[self.unk_id]

    @property
    def symbols(self) -> list[str]:
        """The user-defined pieces: normalization leaves them unchanged, and they always match."""
        kinds = enumerate(self.kinds)
        return [self.pieces[index] for index, kind in kinds if kind == "user_defined"]

    @property
    def description(self) -> str:
        """A few words on the tokenizer's model, such as its type, for messages."""
        return "SentencePiece Unigram"

    def lowercased(self) -> SentencePieceSpec:
        """Raise :class:`TokenizerFileError`: a bare SentencePiece model cannot be lower-cased."""
        raise TokenizerFileError(
            "the texts of a bare SentencePiece model cannot be lower-cased; save the tokenizer as "
            "tokenizer.json, with a Lowercase normalizer"
        )


@dataclass(frozen=True, kw_only=True)
class ByteFallbackStep:
    """Decodes runs of byte tokens as UTF-8; each byte of an invalid run gives a U+FFFD."""


@dataclass(frozen=True, kw_only=True)
class FuseStep:
    """Concatenates all tokens of a text into one, which the decoder's next steps change."""


@dataclass(frozen=True, kw_only=True)
class StripTokensStep:
    """Strips ``content`` off each token, up to ``start`` times in front and ``stop`` at its end."""

    content: str
    start: int
    stop: int


DecoderStep: TypeAlias = MetaspaceSpec | ReplaceStep | ByteFallbackStep | FuseStep | StripTokensStep


@dataclass(frozen=True, kw_only=True)
class DecoderSteps:
    """The decoder steps of a tokenizer.json, applied one after the other."""

    steps: tuple[DecoderStep, ...]


@dataclass(frozen=True, kw_only=True)
class SentencePieceDecoderSpec:
    """SentencePiece's own decoder, which needs no data besides the model."""

    model: SentencePieceSpec
