"""Decodes token ids to text, with the same results as Hugging Face tokenizers' decoders."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Protocol

from encoder_engine.errors import TokenIdError
from encoder_engine.text.byte_level import LETTER_BYTES
from encoder_engine.text.decoding.unigram import SentencePieceJoiner, StepJoiner
from encoder_engine.text.encoders.library import LibraryJoiner
from encoder_engine.text.encoders.normalizing import normalize_added
from encoder_engine.text.spec.bpe import ByteLevelDecoderSpec
from encoder_engine.text.spec.library import LibraryDecoderSpec
from encoder_engine.text.spec.unigram import DecoderSteps, SentencePieceDecoderSpec
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from encoder_engine.text.spec.tokenizer import DecoderSpec, TokenizerSpec, WordPieceDecoderSpec

__all__ = ["Decoder"]

# Applied in this order to every token by itself, after the space in front of it.
CLEANUPS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


class TokenJoiner(Protocol):
    """Joins the tokens of a text into the text."""

    def join(self, tokens: Sequence[str]) -> str:
        """Join the tokens of one text; return the text."""


class Decoder:
    """Decodes token ids: looks up their tokens, and joins these to a text."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._tokens: dict[int, str] | None = None
        self._special = frozenset(t.content for t in spec.added_tokens if t.special)
        self._joiner = build_joiner(spec.decoder)

    def token(self, token_id: int) -> str | None:
        """Return the token with an id, or ``None``."""
        if self._tokens is None:
            self._tokens = self._known_tokens()
        token = self._tokens.get(token_id)
        vocab = self._spec.model.vocab
        if token is None and isinstance(vocab, NativeVocabulary):
            token = vocab.token_of(token_id)
            if token is not None:
                self._tokens[token_id] = token
        return token

    def _known_tokens(self) -> dict[int, str]:
        """Return tokens by id, except those that the extension's vocabulary looks up itself."""
        vocab = self._spec.model.vocab
        native = isinstance(vocab, NativeVocabulary)
        tokens = {} if native else {number: token for token, number in vocab.items()}
        # An added token that is matched in normalized text decodes to its normal form.
        forms = normalize_added(self._spec)
        tokens.update((added.id, forms[added.content]) for added in self._spec.added_tokens)
        return tokens

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool) -> str:
        """Return the text of token ids. Raises :class:`TokenIdError` for an unknown id."""
        tokens: list[str] = []
        try:
            numbered = enumerate(ids)
        except TypeError:
            raise TokenIdError(
                f"ids is {type(ids).__name__} {ids!r}, expected the integers of one row; put one "
                "id into a list"
            ) from None
        for position, item in numbered:
            try:
                number = operator.index(item)
            except TypeError:
                raise TokenIdError(
                    f"{type(item).__name__} {item!r} at position {position} is not an id; give the "
                    "integers of one row",
                    row=position,
                ) from None
            token = self.token(number)
            if token is None:
                raise TokenIdError(
                    f"id {number} at position {position} is not in the vocabulary of "
                    f"{self._spec.vocab_size} tokens",
                    row=position,
                )
            if not (skip_special_tokens and token in self._special):
                tokens.append(token)
        return self._joiner.join(tokens)


def build_joiner(spec: DecoderSpec | None) -> TokenJoiner:
    """Build the object that joins tokens as a decoder's specification says; None: by spaces."""
    if isinstance(spec, LibraryDecoderSpec):
        return LibraryJoiner(spec)
    if isinstance(spec, ByteLevelDecoderSpec):
        return ByteLevelJoiner()
    if isinstance(spec, DecoderSteps):
        return StepJoiner(spec)
    if isinstance(spec, SentencePieceDecoderSpec):
        return SentencePieceJoiner(spec)
    return SpaceJoiner() if spec is None else WordPieceJoiner(spec)


class SpaceJoiner:
    """Joins the tokens of a text by spaces."""

    def join(self, tokens: Sequence[str]) -> str:
        """Join the tokens of one text, with a space between them."""
        return " ".join(tokens)


class ByteLevelJoiner:
    """Joins byte-level tokens: characters to bytes to UTF-8; other tokens are taken as text."""

    def join(self, tokens: Sequence[str]) -> str:
        """Join the tokens of one text; bytes that are not valid UTF-8 become U+FFFD."""
        return b"".join(map(self._bytes, tokens)).decode("utf-8", errors="replace")

    @staticmethod
    def _bytes(token: str) -> bytes:
        try:
            return bytes([LETTER_BYTES[letter] for letter in token])
        except KeyError:
            return token.encode()


class WordPieceJoiner:
    """Joins WordPiece tokens, with a space before each token that begins a word."""

    def __init__(self, spec: WordPieceDecoderSpec) -> None:
        self._spec = spec
        self._inner: dict[str, str] = {}  # text of a token behind another

    def join(self, tokens: Sequence[str]) -> str:
        """Join the WordPiece tokens of one text; return the text."""
        if not tokens:
            return ""
        first = clean_up(tokens[0]) if self._spec.cleanup else tokens[0]
        inner = self._inner
        return first + "".join([inner.get(token) or self._piece(token) for token in tokens[1:]])

    def _piece(self, token: str) -> str:
        """Return what a token that is not the first of a text adds to the text."""
        prefix = self._spec.prefix
        piece = token.removeprefix(prefix) if token.startswith(prefix) else " " + token
        if self._spec.cleanup:
            piece = clean_up(piece)
        self._inner[token] = piece
        return piece


def clean_up(text: str) -> str:
    """Remove spaces before punctuation and contractions, and contract "do not" to "don't"."""
    for artifact, replacement in CLEANUPS:
        text = text.replace(artifact, replacement)
    return text
