"""Reads SentencePiece's .model files, if they hold a Unigram model."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.json_reading import MAX_ID
from encoder_engine.text.formats.protobuf import Message
from encoder_engine.text.spec.charsmap import check_charsmap
from encoder_engine.text.spec.tokenizer import SpecialTokenNames, TemplatePiece, TokenizerSpec
from encoder_engine.text.spec.unigram import SentencePieceDecoderSpec, SentencePieceSpec

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.text.spec.unigram import PieceKind

__all__ = ["SentencePieceModel", "read_sentencepiece_model", "spec_from_sentencepiece"]

# Field numbers of sentencepiece_model.proto.
PIECES, TRAINER, NORMALIZER, SELF_TEST, DENORMALIZER = 1, 2, 3, 4, 5
PIECE, SCORE, KIND = 1, 2, 3
KINDS: dict[int, PieceKind] = {
    1: "normal",
    2: "unknown",
    3: "control",
    4: "user_defined",
    5: "unused",
    6: "byte",
}
# What follows the score of a piece: nothing, or its type.
PLAIN_KINDS = {b"": KINDS[1]} | {bytes([KIND << 3, number]): KINDS[number] for number in KINDS}
FLOAT = struct.Struct("<f")
MODEL_TYPES = {1: "UNIGRAM", 2: "BPE", 3: "WORD", 4: "CHAR"}
MAX_PIECE_BYTES = 8000
BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """A SentencePiece model file's content; ``names``: its unknown and its padding piece."""

    spec: SentencePieceSpec
    names: SpecialTokenNames


def read_sentencepiece_model(path: Path) -> SentencePieceModel:
    """Read a SentencePiece model file; raises :class:`TokenizerFileError` unless it is Unigram."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TokenizerFileError(f"{path} cannot be read: {error}") from error
    top = Message.read(data, path.name)
    top.only_fields((PIECES, TRAINER, NORMALIZER, SELF_TEST, DENORMALIZER))
    trainer, normalizer = top.message(TRAINER), top.message(NORMALIZER)
    kind = trainer.integer(3, 1)
    if kind != 1:
        raise TokenizerFileError(
            f"{path.name}: a SentencePiece model of type {MODEL_TYPES.get(kind, kind)} is not "
            "supported; UNIGRAM is"
        )
    if top.message(DENORMALIZER).blob(2):
        raise TokenizerFileError(f"{path.name}: a denormalizer is not supported")
    normalizer.only_fields((1, 2, 3, 4, 5, 6))
    charsmap = normalizer.blob(2)
    if charsmap:
        check_charsmap(charsmap, path.name)
    pieces, scores, kinds = _read_pieces(top)
    spec = SentencePieceSpec(
        file=data,
        pieces=pieces,
        scores=scores,
        kinds=kinds,
        charsmap=charsmap,
        byte_fallback=trainer.flag(35, False),
        add_dummy_prefix=normalizer.flag(3, True),
        remove_extra_whitespaces=normalizer.flag(4, True),
        escape_whitespaces=normalizer.flag(5, True),
        whitespace_as_suffix=trainer.flag(24, False),
        unk_surface=trainer.text(44, " \u2047 "),
    )
    _check_pieces(spec, path.name)
    controls = {p for p, kind in zip(pieces, kinds, strict=True) if kind == "control"}
    pad = trainer.text(48, "<pad>")
    return SentencePieceModel(
        spec=spec,
        names=SpecialTokenNames(unk=spec.unk_token, pad=pad if pad in controls else None),
    )


def _read_pieces(
    top: Message,
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[PieceKind, ...]]:
    pieces: list[str] = []
    scores: list[float] = []
    kinds: list[PieceKind] = []
    blobs = top.blobs(PIECES)
    if len(blobs) > MAX_ID + 1:
        raise TokenizerFileError(f"{top.where}: {len(blobs)} pieces are too many")
    for index, blob in enumerate(blobs):
        plain = _read_plain(blob)
        if plain is not None:
            pieces.append(plain[0])
            scores.append(plain[1])
            kinds.append(plain[2])
            continue
        where = f"{top.where}: piece {index}"
        item = Message.read(blob, where)
        item.only_fields((PIECE, SCORE, KIND))
        kind = item.integer(KIND, 1)
        if kind not in KINDS:
            raise TokenizerFileError(f"{where}: there is no type {kind}")
        pieces.append(item.text(PIECE))
        scores.append(item.number(SCORE))
        kinds.append(KINDS[kind])
    return tuple(pieces), tuple(scores), tuple(kinds)


def _read_plain(blob: bytes) -> tuple[str, float, PieceKind] | None:
    """Read a piece of the usual byte layout, faster than by :class:`Message`; None for others."""
    score_at = 2 + blob[1] if len(blob) > 1 else 0
    rest = blob[score_at + 5 :]
    if (
        blob[:1] != b"\x0a"
        or blob[1] > 0x7F
        or blob[score_at : score_at + 1] != b"\x15"
        or len(blob) < score_at + 5
        or rest not in PLAIN_KINDS
    ):
        return None
    try:
        piece = blob[2:score_at].decode("utf-8")
    except UnicodeDecodeError:
        return None
    return piece, FLOAT.unpack_from(blob, score_at + 1)[0], PLAIN_KINDS[rest]


def _check_pieces(spec: SentencePieceSpec, where: str) -> None:
    """Refuse a model with pieces that SentencePiece itself refuses."""
    seen: dict[str, int] = {}
    for index, (piece, score, kind) in enumerate(
        zip(spec.pieces, spec.scores, spec.kinds, strict=True)
    ):
        place = f"{where}: piece {index}"
        if not piece or "\0" in piece or len(piece.encode()) >= MAX_PIECE_BYTES:
            raise TokenizerFileError(f"{place} is empty, holds a zero byte, or is too long")
        if not math.isfinite(score):
            raise TokenizerFileError(f"{place}: the score of {piece!r} is {score}")
        if seen.setdefault(piece, index) != index:
            raise TokenizerFileError(f"{place} is {piece!r}, as piece {seen[piece]} is")
        if kind == "byte" and (piece not in BYTE_PIECES or not spec.byte_fallback):
            raise TokenizerFileError(f"{place}: {piece!r} is not a byte, or byte_fallback is off")
    unknown = spec.kinds.count("unknown")
    if unknown != 1:
        raise TokenizerFileError(f"{where}: {unknown} unknown pieces, expected 1")
    if "normal" not in spec.kinds and "user_defined" not in spec.kinds:
        raise TokenizerFileError(f"{where}: there is no piece that text could match")
    if spec.byte_fallback and spec.kinds.count("byte") != len(BYTE_PIECES):
        raise TokenizerFileError(
            f"{where}: byte_fallback needs 256 byte pieces, found {spec.kinds.count('byte')}"
        )


def spec_from_sentencepiece(path: Path) -> TokenizerSpec:
    """Return a SentencePiece model as SentencePiece itself applies it: own ids, no template."""
    model = read_sentencepiece_model(path)
    first = TemplatePiece(kind="first", type_id=0)
    return TokenizerSpec(
        model=model.spec,
        single=(first,),
        pair=(first, TemplatePiece(kind="second", type_id=1)),
        decoder=SentencePieceDecoderSpec(model=model.spec),
        special=model.names,
    )
