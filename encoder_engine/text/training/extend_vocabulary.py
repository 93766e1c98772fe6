"""Extends a WordPiece vocabulary by the words of a domain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.errors import ConfigError
from encoder_engine.text.spec.tokenizer import WordPieceSpec
from encoder_engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["with_tokens"]


def with_tokens(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """Return a tokenizer that encodes each word in ``words`` as one token; existing ids stay.

    Words that are already in the vocabulary are skipped. Raises :class:`ConfigError` for a
    tokenizer that is not WordPiece or has an added token beyond its vocabulary, whose id would
    collide with the new tokens, and for a word that normalization or punctuation would still split.
    """
    spec = tokenizer.spec
    if not isinstance(spec.model, WordPieceSpec):
        raise ConfigError(
            "only a WordPiece vocabulary can be given words; this tokenizer is another"
        )
    vocab = dict(spec.model.vocab.items())
    beyond = next((token for token in spec.added_tokens if token.content not in vocab), None)
    if beyond is not None:
        raise ConfigError(
            f"the added token {beyond.content!r} (id {beyond.id}) is not in the vocabulary, which "
            "can therefore not grow; give the token its line in vocab.txt, and save the tokenizer"
        )
    for number, word in enumerate(w for w in dict.fromkeys(words) if w not in spec.model.vocab):
        vocab[word] = tokenizer.vocab_size + number
    grown = Tokenizer(replace(spec, model=replace(spec.model, vocab=vocab)))
    for word in words:
        found = grown.encode(word, add_special_tokens=False).tolist()
        if found != [vocab[word]]:
            tokens = [grown.id_to_token(number) for number in found]
            raise ConfigError(
                f"{word!r} would be cut to {tokens}; write it as the tokenizer normalises it, and "
                "without punctuation"
            )
    return grown
