"""Reads vocab.json and merges.txt, RoBERTa's byte-level BPE."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.bpe_json import read_bpe, read_bpe_decoder
from encoder_engine.text.formats.json_reading import read_json, read_text, value_of
from encoder_engine.text.formats.template_json import roberta_layouts
from encoder_engine.text.spec.library import OffsetTrim
from encoder_engine.text.spec.tokenizer import AddedTokenSpec, SpecialTokenNames, TokenizerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.text.formats.config_json import TokenizerConfig
    from encoder_engine.text.spec.bpe import BpeSpec
    from encoder_engine.text.spec.library import LibrarySpec

__all__ = ["MERGES", "VOCAB", "check_prefix_space", "spec_from_byte_bpe"]

VOCAB, MERGES = "vocab.json", "merges.txt"
# Classes whose two files mean what RoBERTa's do, less the suffix "Fast".
ROBERTA_LIKE = frozenset(
    {"BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer", "RobertaTokenizer"}
)
NAMES = {"unk": "<unk>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}


def spec_from_byte_bpe(folder: Path, config: TokenizerConfig) -> TokenizerSpec:
    """Return RoBERTa's tokenizer from vocab.json and merges.txt, as transformers builds it."""
    if config.kind not in ROBERTA_LIKE:
        source = f"of {config.kind}" if config.kind else "without a tokenizer_class or config.json"
        raise TokenizerFileError(
            f"{folder}: a {VOCAB} and {MERGES} {source} are not supported; those of "
            f"{', '.join(sorted(ROBERTA_LIKE))} are, and any tokenizer saved as tokenizer.json"
        )
    vocab = read_json(folder / VOCAB).object()
    prefixed = bool(config.add_prefix_space)
    level: dict[str, Any] = {
        "type": "ByteLevel",
        "add_prefix_space": prefixed,
        "trim_offsets": True,
        "use_regex": True,
    }
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": vocab,
        "merges": read_merges(folder / MERGES),
    }
    top = value_of({"pre_tokenizer": level, "model": model}, VOCAB)
    wanted = {part: getattr(config.names, part) or name for part, name in NAMES.items()}
    names = {part: name for part, name in wanted.items() if name in vocab}
    for part in ("unk", "cls", "sep"):
        if part not in names:
            raise TokenizerFileError(f"{folder / VOCAB} lacks {wanted[part]!r}, the {part} token")
    single, pair = roberta_layouts(
        (names["cls"], vocab[names["cls"]]), (names["sep"], vocab[names["sep"]])
    )
    listed = {token.content: token for token in config.added_tokens or ()}
    added = [
        listed.get(name, AddedTokenSpec(content=name, id=vocab[name]))
        for name in dict.fromkeys(names.values())
    ]
    added += [token for name, token in listed.items() if name not in names.values()]
    return TokenizerSpec(
        model=read_bpe(top),
        trim=None if config.trim_offsets is False else OffsetTrim(add_prefix_space=prefixed),
        single=single,
        pair=pair,
        added_tokens=tuple(sorted(added, key=lambda token: token.id)),
        decoder=read_bpe_decoder(value_of(level, "decoder")),
        special=SpecialTokenNames(**names),
    )


def check_prefix_space(model: BpeSpec | LibrarySpec, config: TokenizerConfig) -> None:
    """Raise TokenizerFileError if a config's ``add_prefix_space`` contradicts tokenizer.json.

    transformers would override the value of tokenizer.json.
    """
    stated = config.add_prefix_space
    for step in _steps(json.loads(model.pre_tokenizer)):
        found = step.get("add_prefix_space")
        if stated is not None and found is not None and found != stated:
            raise TokenizerFileError(
                f"{config.where} has add_prefix_space={stated}, but the pre-tokenizer of "
                "tokenizer.json does the opposite; correct the one that is wrong"
            )


def _steps(pre_tokenizer: Any) -> list[dict[str, Any]]:
    if not isinstance(pre_tokenizer, dict):
        return []
    inner = pre_tokenizer.get("pretokenizers")
    if not isinstance(inner, list):
        return [pre_tokenizer]
    return [step for item in inner for step in _steps(item)]


def read_merges(path: Path) -> list[list[str]]:
    """Read merges.txt, best merge first; a first line with ``#version`` in front is a comment."""
    pairs: list[list[str]] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise TokenizerFileError(
                f"{path}: line {number} is not two pieces with a space between"
            )
        pairs.append(pair)
    return pairs
