"""Hands BPE specifications to the C++ encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from encoder_engine.text.encoders.native_unigram import SCHEMES, native_steps
from encoder_engine.text.extension import extension
from encoder_engine.text.spec.bpe import WordPattern

if TYPE_CHECKING:
    from encoder_engine.text.encoders.protocols import BatchEncoder, EncoderParts
    from encoder_engine.text.spec.bpe import BpeSpec

__all__ = ["build_bpe"]

PATTERNS = {name: number for number, name in enumerate(get_args(WordPattern))}


def build_bpe(model: BpeSpec, parts: EncoderParts) -> BatchEncoder:
    """Build the encoder of a BPE model."""
    splitting, metaspace = model.splitting, model.splitting.metaspace
    if parts.trim:
        model.model.count_blanks(model.tokens)
    encoder: BatchEncoder = extension().bpe_encoder(
        model=model.model,
        steps=native_steps(model.normalizer),
        splitting=(
            PATTERNS[splitting.pattern],
            splitting.add_prefix_space,
            metaspace is not None,
            SCHEMES["never" if metaspace is None else metaspace.prepend_scheme],
        ),
        added=parts.added,
        single=parts.single,
        pair=parts.pair,
        trim=parts.trim,
    )
    return encoder
