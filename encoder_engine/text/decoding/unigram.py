"""Joins tokens to text, as the decoders of Unigram tokenizers do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from encoder_engine.text.spec.unigram import (
    ByteFallbackStep,
    FuseStep,
    MetaspaceSpec,
    ReplaceStep,
    StripTokensStep,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.text.spec.unigram import (
        DecoderStep,
        DecoderSteps,
        SentencePieceDecoderSpec,
    )

__all__ = ["SentencePieceJoiner", "StepJoiner"]

MARK = "\u2581"
BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class StepJoiner:
    """Joins tokens by a tokenizer.json's decoder: applies its steps one after the other."""

    def __init__(self, spec: DecoderSteps) -> None:
        self._steps = spec.steps

    def join(self, tokens: Sequence[str]) -> str:
        """Apply the decoder's steps to the tokens of one text; return the text."""
        parts = list(tokens)
        for step in self._steps:
            parts = apply_decoder(parts, step)
        return "".join(parts)


def apply_decoder(tokens: list[str], step: DecoderStep) -> list[str]:
    """Apply one step of a tokenizer.json's decoder to the tokens of a text."""
    if isinstance(step, MetaspaceSpec):
        mark = step.replacement
        first = " " if step.prepend_scheme == "never" else ""
        return [t.replace(mark, " " if i else first) for i, t in enumerate(tokens)]
    if isinstance(step, ReplaceStep):
        return [token.replace(step.pattern, step.content) for token in tokens]
    if isinstance(step, ByteFallbackStep):
        return join_bytes(tokens)
    if isinstance(step, FuseStep):
        return ["".join(tokens)]
    assert isinstance(step, StripTokensStep)
    return [strip_token(token, step) for token in tokens]


def join_bytes(tokens: list[str]) -> list[str]:
    """Decode runs of byte tokens (``<0x41>``) as UTF-8; each byte of a bad run becomes U+FFFD."""
    out: list[str] = []
    pending = bytearray()

    def flush() -> None:
        if pending:
            try:
                out.append(pending.decode("utf-8"))
            except UnicodeDecodeError:
                out.extend("\ufffd" * len(pending))
            pending.clear()

    for token in tokens:
        if BYTE_TOKEN.fullmatch(token):
            pending.append(int(token[3:5], 16))
        else:
            flush()
            out.append(token)
    flush()
    return out


def strip_token(token: str, step: StripTokensStep) -> str:
    """Strip the character ``step.content`` off the ends of a token, as often as the step says."""
    start = 0
    while start < min(step.start, len(token)) and token[start] == step.content:
        start += 1
    stop = len(token)
    while stop > start and len(token) - stop < step.stop and token[stop - 1] == step.content:
        stop -= 1
    return token[start:stop]


class SentencePieceJoiner:
    """Joins pieces as SentencePiece does: control symbols give no text."""

    def __init__(self, spec: SentencePieceDecoderSpec) -> None:
        self._model = spec.model

    def join(self, tokens: Sequence[str]) -> str:
        """Join the pieces of one text as SentencePiece does; return the text."""
        model = self._model
        out: list[str] = []
        pending = bytearray()
        opening = True  # whether a space in front is still that of the dummy prefix
        for token in tokens:
            kind = model.kinds[model.vocab[token]]
            if kind == "byte":
                pending.append(int(token[3:5], 16))
                continue
            out.append(decode_bytes(pending))
            pending.clear()
            opening = opening and not any(out)
            text, opening = self._surface(token, kind, opening)
            out.append(text)
        return "".join(out) + decode_bytes(pending)

    def _surface(self, piece: str, kind: str, opening: bool) -> tuple[str, bool]:
        """Return a piece's text, and whether the next piece can still be the first of the text."""
        model = self._model
        if kind == "control":
            return "", opening
        if kind == "unknown":
            return model.unk_surface, opening
        if opening and (model.add_dummy_prefix or model.remove_extra_whitespaces):
            shorter = piece.removeprefix(MARK)
            # With extra white space removed, all of it in front goes.
            opening = shorter == piece or model.remove_extra_whitespaces
            piece = shorter
        return piece.replace(MARK, " "), opening


def decode_bytes(data: bytes | bytearray) -> str:
    """Decode UTF-8, with one U+FFFD for each invalid byte."""
    out: list[str] = []
    at = 0
    while at < len(data):
        for size in range(1, 5):
            try:
                out.append(data[at : at + size].decode("utf-8"))
            except UnicodeDecodeError:
                continue
            break
        else:
            size = 1
            out.append("\ufffd")
        at += size
    return "".join(out)
