"""Hands a specification to the C++ encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import MissingExtensionError

if TYPE_CHECKING:
    from types import ModuleType

    from encoder_engine import _native
    from encoder_engine.text.spec import NormalizerSpec, TemplatePiece, TokenizerSpec

__all__ = ["build_encoder", "normalize_added", "normalizer_options"]

# The order of csrc/text/encode_batch.h.
PIECE_KINDS = {"special": 0, "first": 1, "second": 2}


def extension() -> ModuleType:
    """Import the C++ extension; :class:`MissingExtensionError` says how to build it."""
    try:
        from encoder_engine import _native
    except ImportError as error:
        raise MissingExtensionError(
            "tokenizing needs the native extension, which is not built for this Python "
            f"({error}); build it with: pip install . (or, in a checkout, "
            "python setup.py build_ext --inplace)"
        ) from error
    return _native


def normalizer_options(spec: NormalizerSpec) -> _native.NormalizerOptions:
    """Give the normalizer's switches as the extension takes them."""
    options: _native.NormalizerOptions = extension().NormalizerOptions(
        clean_text=spec.clean_text,
        handle_cjk=spec.handle_chinese_chars,
        strip_accents=spec.strips_accents,
        lowercase=spec.lowercase,
    )
    return options


def normalize_added(spec: TokenizerSpec) -> dict[str, str]:
    """Give for each added token the text to match: its normal form where it says so."""
    forms = {token.content: token.content for token in spec.added_tokens}
    if any(token.normalized for token in spec.added_tokens):
        normalizer = extension().Normalizer(normalizer_options(spec.normalizer))
        for token in spec.added_tokens:
            if token.normalized:
                forms[token.content] = normalizer.normalize(token.content)
    return forms


def build_encoder(spec: TokenizerSpec) -> _native.BatchEncoder:
    """Build the native encoder of a specification."""
    forms = normalize_added(spec)
    model = spec.model
    encoder: _native.BatchEncoder = extension().BatchEncoder.wordpiece(
        tokens=dict(model.vocab),
        unknown_id=model.vocab[model.unk_token],
        prefix=model.continuing_subword_prefix,
        max_word_characters=model.max_input_chars_per_word,
        normalizer=normalizer_options(spec.normalizer),
        added=[
            (
                forms[token.content],
                token.id,
                token.single_word,
                token.lstrip,
                token.rstrip,
                token.normalized,
            )
            for token in spec.added_tokens
        ],
        single=_template(spec.single),
        pair=_template(spec.pair),
    )
    return encoder


def _template(pieces: tuple[TemplatePiece, ...]) -> list[tuple[int, list[int]]]:
    return [(PIECE_KINDS[piece.kind], list(piece.ids)) for piece in pieces]
