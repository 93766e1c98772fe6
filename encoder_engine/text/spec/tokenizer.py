"""The specification of a tokenizer: dataclasses that readers fill and encoders are built from."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from encoder_engine.dataclass import dataclass
from encoder_engine.text.spec.bpe import BpeSpec, ByteLevelDecoderSpec
from encoder_engine.text.spec.library import LibraryDecoderSpec, LibrarySpec, OffsetTrim
from encoder_engine.text.spec.unigram import (
    DecoderSteps,
    SentencePieceDecoderSpec,
    SentencePieceSpec,
    UnigramSpec,
)
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AddedTokenSpec",
    "BertNormalizerSpec",
    "DecoderSpec",
    "ModelSpec",
    "PaddingSpec",
    "SpecialTokenNames",
    "TemplatePiece",
    "TokenizerSpec",
    "TruncationSpec",
    "WordPieceDecoderSpec",
    "WordPieceSpec",
]

Side = Literal["left", "right"]
PieceKind = Literal["special", "first", "second"]
Strategy = Literal["longest_first", "only_first", "only_second"]


@dataclass(frozen=True, kw_only=True)
class BertNormalizerSpec:
    """The four switches of BERT's normalizer, in the order in which they apply."""

    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None  # None: as lowercase
    lowercase: bool

    @property
    def strips_accents(self) -> bool:
        """True if the normalizer decomposes texts (NFD) and removes non-spacing marks."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


@dataclass(frozen=True, kw_only=True)
class WordPieceSpec:
    """A WordPiece vocabulary and the settings of its matching.

    ``vocab`` maps each piece to its id; ids are distinct and may leave gaps.
    """

    vocab: Mapping[str, int] = field(repr=False)
    unk_token: str
    continuing_subword_prefix: str
    max_input_chars_per_word: int
    normalizer: BertNormalizerSpec

    @property
    def num_ids(self) -> int:
        """The number of pieces: the id of the first added token that is not among them."""
        return len(self.vocab)

    @property
    def description(self) -> str:
        """A few words on the tokenizer's model, such as its type, for messages."""
        return f"WordPiece, {'lower-cased' if self.normalizer.lowercase else 'cased'}"

    def lowercased(self) -> WordPieceSpec:
        """Return a model that lower-cases texts, and treats accents as this model does."""
        accents = self.normalizer.strips_accents
        lowered = replace(self.normalizer, lowercase=True, strip_accents=accents)
        return self if self.normalizer.lowercase else replace(self, normalizer=lowered)


@dataclass(frozen=True, kw_only=True)
class AddedTokenSpec:
    """A token that is searched for in texts, before the model encodes what is between."""

    content: str
    id: int
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


@dataclass(frozen=True, kw_only=True)
class TemplatePiece:
    """One element of a template: fixed tokens (``special``), the first text, or the second text."""

    kind: PieceKind
    type_id: int
    tokens: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WordPieceDecoderSpec:
    """The settings of WordPiece's decoder."""

    prefix: str
    cleanup: bool


# Each kind of model has one reader, one encoder and one writer, chosen by the type of these in
# tokenizer_json.py, encoders/build.py, decoding/decoder.py and saving.py.
ModelSpec: TypeAlias = WordPieceSpec | UnigramSpec | SentencePieceSpec | BpeSpec | LibrarySpec
DecoderSpec: TypeAlias = (
    WordPieceDecoderSpec
    | DecoderSteps
    | SentencePieceDecoderSpec
    | ByteLevelDecoderSpec
    | LibraryDecoderSpec
)


@dataclass(frozen=True, kw_only=True)
class TruncationSpec:
    """The truncation that a tokenizer.json states: callers may read it; it is not applied."""

    max_length: int
    strategy: Strategy
    stride: int
    direction: Side


@dataclass(frozen=True, kw_only=True)
class PaddingSpec:
    """The padding that a tokenizer.json states: callers may read it; it is not applied."""

    length: int | None  # None: as long as the longest row
    direction: Side
    multiple_of: int | None
    pad_id: int
    pad_type_id: int
    pad_token: str


@dataclass(frozen=True, kw_only=True)
class SpecialTokenNames:
    """A tokenizer's special tokens by role; ``None`` where it has none."""

    unk: str | None = None
    cls: str | None = None
    sep: str | None = None
    pad: str | None = None
    mask: str | None = None


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """The complete specification of a tokenizer.

    single, pair: the templates of a text and of a pair; each contains its texts once, or for a
        :class:`LibrarySpec` at least once.
    template_fault: why the file's template cannot be used; ``single`` and ``pair`` then have no
        special tokens.
    trim: whether offsets leave out white space at a token's ends.
    truncation, padding, model_max_length: recommendations of the files;
        :meth:`Tokenizer.encode_batch` truncates only with ``max_length``.
    """

    model: ModelSpec
    single: tuple[TemplatePiece, ...]
    pair: tuple[TemplatePiece, ...]
    added_tokens: tuple[AddedTokenSpec, ...] = ()
    decoder: DecoderSpec | None
    special: SpecialTokenNames
    template_fault: str = ""
    trim: OffsetTrim | None = None
    truncation: TruncationSpec | None = None
    padding: PaddingSpec | None = None
    truncation_side: Side = "right"
    padding_side: Side = "right"
    model_max_length: int | None = None

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, added or of the vocabulary; ``None`` for an unknown one."""
        for added in self.added_tokens:
            if added.content == token:
                return added.id
        return self.model.vocab.get(token)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the fields that a model reads, such as ``input_ids``.

        ``token_type_ids`` is one if a template has types other than 0.
        """
        # Only BERT's and DeBERTa's classes give token types by default.
        types = any(piece.type_id for piece in (*self.single, *self.pair))
        return ("input_ids", *(["token_type_ids"] if types else []), "attention_mask")

    @property
    def vocab_size(self) -> int:
        """The number of rows that an embedding table needs: the largest id plus one."""
        vocab = self.model.vocab
        if isinstance(vocab, NativeVocabulary):
            largest = vocab.largest_id
        else:
            largest = max(vocab.values(), default=-1)
        return 1 + max((largest, *(added.id for added in self.added_tokens)))
