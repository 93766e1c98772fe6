"""Ids back to text, as the WordPiece decoder of Hugging Face tokenizers does it."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from encoder_engine.errors import TokenIdError
from encoder_engine.text.native import normalize_added

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.text.spec import TokenizerSpec

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


class Decoder:
    """Maps ids to tokens and joins tokens into text."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._tokens: dict[int, str] | None = None
        self._special = frozenset(t.content for t in spec.added_tokens if t.special)
        self._added = {token.id: token for token in spec.added_tokens}
        self._inner: dict[int, str] = {}  # text of an id behind another

    def token(self, token_id: int) -> str | None:
        """Give the token of an id, or ``None``."""
        if self._tokens is None:
            tokens = {number: token for token, number in self._spec.model.vocab.items()}
            # An added token that is matched in normalized text decodes to its normal form.
            forms = normalize_added(self._spec)
            tokens.update((added.id, forms[added.content]) for added in self._spec.added_tokens)
            self._tokens = tokens
        return self._tokens.get(token_id)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool) -> str:
        """Join the tokens of ``ids``."""
        pieces: list[str] = []
        tokens: list[str] = []
        for position, item in enumerate(ids):
            number = operator.index(item)
            token = self.token(number)
            if token is None:
                raise TokenIdError(
                    f"id {number} at position {position} is not in the vocabulary of "
                    f"{self._spec.vocab_size} tokens",
                    row=position,
                )
            if skip_special_tokens and token in self._special:
                continue
            tokens.append(token)
            pieces.append(self._piece(number, token) if len(tokens) > 1 else token)
        if self._spec.decoder is None:
            return " ".join(tokens)
        if pieces and self._spec.decoder.cleanup:
            pieces[0] = clean_up(pieces[0])
        return "".join(pieces)

    def _piece(self, number: int, token: str) -> str:
        """Give the text of a token that follows another."""
        if self._spec.decoder is None:
            return token
        known = self._inner.get(number)
        if known is not None:
            return known
        prefix = self._spec.decoder.prefix
        piece = token.removeprefix(prefix) if token.startswith(prefix) else " " + token
        if self._spec.decoder.cleanup:
            piece = clean_up(piece)
        self._inner[number] = piece
        return piece


def clean_up(text: str) -> str:
    """Remove the spaces that tokenization put before punctuation and contractions."""
    for artifact, replacement in CLEANUPS:
        text = text.replace(artifact, replacement)
    return text
