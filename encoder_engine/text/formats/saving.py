"""Writes a tokenizer as the files that Hugging Face libraries read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine import files
from encoder_engine.errors import OutputError
from encoder_engine.text.formats.bpe_json import bpe_model_member
from encoder_engine.text.formats.library_json import library_members, trimming_member
from encoder_engine.text.formats.unigram_saving import (
    decoder_member,
    normalizer_member,
    unigram_members,
)
from encoder_engine.text.formats.vocab_txt import is_line
from encoder_engine.text.formats.wordpiece_json import wordpiece_members
from encoder_engine.text.spec.bpe import BpeSpec, ByteLevelDecoderSpec
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import WordPieceDecoderSpec, WordPieceSpec
from encoder_engine.text.spec.unigram import DecoderSteps, SentencePieceSpec, UnigramSpec

if TYPE_CHECKING:
    from os import PathLike

    from encoder_engine.text.spec.tokenizer import TemplatePiece, TokenizerSpec

__all__ = ["save", "tokenizer_json"]

SENTENCEPIECE_FILE = "tokenizer.model"
STRATEGIES = {
    "longest_first": "LongestFirst",
    "only_first": "OnlyFirst",
    "only_second": "OnlySecond",
}
PARTS = ("unk", "sep", "pad", "cls", "mask")


def save(spec: TokenizerSpec, directory: str | PathLike[str]) -> None:
    """Write tokenizer.json, tokenizer_config.json, special_tokens_map.json and vocab.txt.

    vocab.txt is written for WordPiece, unless ids have gaps or a token has a line end, which the
    format cannot express. A bare SentencePiece model gives one file, tokenizer.model.
    Each file appears complete or not at all; tokenizer.json, which loading reads, comes last.

    Raises:
        OutputError: a file cannot be written.

    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(spec.model, SentencePieceSpec):
            files.write_atomically(folder / SENTENCEPIECE_FILE, bytes(spec.model.file))
            return
        names = _companion_names(spec)
        ordered = sorted(spec.model.vocab.items(), key=lambda item: item[1])
        gapless = [number for _, number in ordered] == list(range(len(ordered)))
        lines = isinstance(spec.model, WordPieceSpec) and all(map(is_line, spec.model.vocab))
        if gapless and lines:
            _write(folder / "vocab.txt", "".join(f"{token}\n" for token, _ in ordered))
        _write(folder / "special_tokens_map.json", _dump(names))
        _write(folder / "tokenizer_config.json", _dump(_config(spec) | names))
        _write(folder / "tokenizer.json", _dump(tokenizer_json(spec)))
    except OSError as error:
        raise OutputError(f"{folder}: the tokenizer cannot be written: {error}") from error


def _companion_names(spec: TokenizerSpec) -> dict[str, str]:
    """Return the special tokens to name in tokenizer_config.json: those that are added tokens.

    Naming a token there makes it an added token. Loading infers the unknown and the padding token
    from tokenizer.json.
    """
    added = {token.content for token in spec.added_tokens}
    names = {f"{part}_token": getattr(spec.special, part) for part in PARTS}
    return {key: name for key, name in names.items() if name in added}


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _write(path: Path, text: str) -> None:
    files.write_atomically(path, text.encode("utf-8"))


def _config(spec: TokenizerSpec) -> dict[str, Any]:
    flags = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    decoder = {
        str(token.id): {flag: getattr(token, flag) for flag in flags}
        for token in sorted(spec.added_tokens, key=lambda item: item.id)
    }
    config: dict[str, Any] = {
        "added_tokens_decoder": decoder,
        "model_input_names": list(spec.input_names),
        "padding_side": spec.padding_side,
        "truncation_side": spec.truncation_side,
    }
    if isinstance(spec.model, WordPieceSpec):
        config |= _wordpiece_config(spec, spec.model)
    else:
        config["clean_up_tokenization_spaces"] = False
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if spec.model_max_length is not None:
        config["model_max_length"] = spec.model_max_length
    return config


def _wordpiece_config(spec: TokenizerSpec, model: WordPieceSpec) -> dict[str, Any]:
    normalizer, decoder = model.normalizer, spec.decoder
    cleanup = isinstance(decoder, WordPieceDecoderSpec) and decoder.cleanup
    return {
        "clean_up_tokenization_spaces": cleanup,
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
        "tokenizer_class": "BertTokenizer" if _is_bert(spec, model) else "PreTrainedTokenizerFast",
    }


def _is_bert(spec: TokenizerSpec, model: WordPieceSpec) -> bool:
    """Return whether transformers' BertTokenizer is equivalent to this tokenizer.

    BertTokenizer has a fixed template and exactly five special tokens as added tokens.
    """
    kinds = [(piece.kind, piece.type_id) for piece in spec.pair]
    return (
        kinds == [("special", 0), ("first", 0), ("special", 0), ("second", 1), ("special", 1)]
        and model.normalizer.clean_text
        and model.continuing_subword_prefix == "##"
        and model.max_input_chars_per_word == 100
        and len(_companion_names(spec)) == len(PARTS)
    )


def _layout(pieces: tuple[TemplatePiece, ...]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for piece in pieces:
        if piece.kind == "special":
            name = " ".join(piece.tokens)
            out.append({"SpecialToken": {"id": name, "type_id": piece.type_id}})
        else:
            name = "A" if piece.kind == "first" else "B"
            out.append({"Sequence": {"id": name, "type_id": piece.type_id}})
    return out


def _post_processor(spec: TokenizerSpec) -> dict[str, Any]:
    special = {
        " ".join(piece.tokens): {
            "id": " ".join(piece.tokens),
            "ids": list(piece.ids),
            "tokens": list(piece.tokens),
        }
        for piece in (*spec.single, *spec.pair)
        if piece.kind == "special"
    }
    template = {
        "type": "TemplateProcessing",
        "single": _layout(spec.single),
        "pair": _layout(spec.pair),
        "special_tokens": special,
    }
    if spec.trim is None:
        return template
    trimming = trimming_member(spec.trim)
    return {"type": "Sequence", "processors": [trimming, template]}


def _truncation(spec: TokenizerSpec) -> dict[str, Any] | None:
    if spec.truncation is None:
        return None
    return {
        "direction": spec.truncation.direction.capitalize(),
        "max_length": spec.truncation.max_length,
        "strategy": STRATEGIES[spec.truncation.strategy],
        "stride": spec.truncation.stride,
    }


def _padding(spec: TokenizerSpec) -> dict[str, Any] | None:
    padding = spec.padding
    if padding is None:
        return None
    return {
        "strategy": "BatchLongest" if padding.length is None else {"Fixed": padding.length},
        "direction": padding.direction.capitalize(),
        "pad_to_multiple_of": padding.multiple_of,
        "pad_id": padding.pad_id,
        "pad_type_id": padding.pad_type_id,
        "pad_token": padding.pad_token,
    }


def _members(spec: TokenizerSpec) -> dict[str, Any]:
    """Return the members of tokenizer.json that depend on the kind of model, such as BPE."""
    if isinstance(spec.model, LibrarySpec):
        return library_members(spec.model, spec.decoder)
    if isinstance(spec.model, UnigramSpec):
        return unigram_members(spec, spec.model)
    if isinstance(spec.model, BpeSpec):
        return _bpe_members(spec, spec.model)
    assert isinstance(spec.model, WordPieceSpec)
    return wordpiece_members(spec, spec.model)


def _bpe_members(spec: TokenizerSpec, model: BpeSpec) -> dict[str, Any]:
    decoder: dict[str, Any] | None
    if isinstance(spec.decoder, ByteLevelDecoderSpec):
        decoder = json.loads(spec.decoder.decoder)
    else:
        decoder = decoder_member(
            spec.decoder.steps if isinstance(spec.decoder, DecoderSteps) else ()
        )
    return {
        "normalizer": normalizer_member(model.normalizer),
        "pre_tokenizer": json.loads(model.pre_tokenizer),
        "decoder": decoder,
        "model": bpe_model_member(model),
    }


def tokenizer_json(spec: TokenizerSpec) -> dict[str, Any]:
    """Return a tokenizer as the content of its tokenizer.json."""
    flags = ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
    members = _members(spec)
    return {
        "version": "1.0",
        "truncation": _truncation(spec),
        "padding": _padding(spec),
        "added_tokens": [
            {flag: getattr(token, flag) for flag in flags} for token in spec.added_tokens
        ],
        "normalizer": members["normalizer"],
        "pre_tokenizer": members["pre_tokenizer"],
        "post_processor": _post_processor(spec),
        "decoder": members["decoder"],
        "model": members["model"],
    }
