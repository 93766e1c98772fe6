"""What the readers of other files make sure of, made sure of for a compiled one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.charsmap import check_charsmap
from encoder_engine.text.formats.json_reading import MAX_COUNT, MAX_ID, Node
from encoder_engine.text.formats.unigram_json import check_unigram
from encoder_engine.text.formats.unigram_saving import unigram_members
from encoder_engine.text.spec.tokenizer import WordPieceSpec
from encoder_engine.text.spec.unigram import CharsmapStep, SentencePieceSpec, UnigramSpec

if TYPE_CHECKING:
    from encoder_engine.text.spec.tokenizer import TemplatePiece, TokenizerSpec

__all__ = ["check_spec"]

WHERE = "the specification"


def check_spec(spec: TokenizerSpec) -> None:
    """Refuse what the encoder does not look at, trusting that a reader did."""
    _check_layout(spec.single, ["first"])
    _check_layout(spec.pair, ["first", "second"])
    padding = spec.padding
    ids = [token.id for token in spec.added_tokens]
    ids += [number for piece in (*spec.single, *spec.pair) for number in piece.ids]
    ids += [] if padding is None else [padding.pad_id]
    types = [piece.type_id for piece in (*spec.single, *spec.pair)]
    types += [] if padding is None else [padding.pad_type_id]
    if max(ids, default=0) > MAX_ID or max(types, default=0) > MAX_COUNT:
        raise TokenizerFileError(f"{WHERE} has an id that is too large")
    model = spec.model
    if isinstance(model, UnigramSpec):
        _check_unigram(spec, model)
    elif isinstance(model, SentencePieceSpec):
        _check_sentencepiece(model)
    elif isinstance(model, WordPieceSpec) and model.unk_token not in model.vocab:
        raise TokenizerFileError(f"{model.unk_token!r} is not in the vocabulary")


def _check_layout(pieces: tuple[TemplatePiece, ...], texts: list[str]) -> None:
    if sorted(piece.kind for piece in pieces if piece.kind != "special") != texts:
        raise TokenizerFileError(f"{WHERE} has a template without each of its texts once")


def _check_unigram(spec: TokenizerSpec, model: UnigramSpec) -> None:
    if model.unk_id is None or model.unk_id >= len(model.pieces):
        raise TokenizerFileError(f"the unknown token {model.unk_id} is not among the pieces")
    steps = tuple(step for step in model.normalizer if not isinstance(step, CharsmapStep))
    bare = replace(model, pieces=(), scores=(), normalizer=steps)
    check_unigram(Node(unigram_members(spec, bare), WHERE))
    for step in model.normalizer:
        if isinstance(step, CharsmapStep):
            check_charsmap(step.charsmap, WHERE)


def _check_sentencepiece(model: SentencePieceSpec) -> None:
    if model.charsmap:
        check_charsmap(model.charsmap, WHERE)
    if model.kinds.count("unknown") != 1:
        raise TokenizerFileError("the pieces have not one unknown token among them")
    symbols = model.symbols
    if "" in symbols or len(set(symbols)) != len(symbols):
        raise TokenizerFileError("a user-defined piece is empty or occurs twice")
