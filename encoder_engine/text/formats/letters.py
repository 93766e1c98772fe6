"""Reads the vocab.txt of ESM's tokenizer, whose tokens are letters of proteins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.json_reading import value_of
from encoder_engine.text.formats.library_json import read_library
from encoder_engine.text.formats.template_json import bert_layouts
from encoder_engine.text.spec.tokenizer import (
    AddedTokenSpec,
    SpecialTokenNames,
    TokenizerSpec,
)

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.text.formats.config_json import TokenizerConfig

__all__ = ["LETTER_CLASSES", "spec_from_letters"]

# Classes whose every piece is split off the text wherever it is found.
LETTER_CLASSES = frozenset({"EsmTokenizer"})
NAMES = {"unk": "<unk>", "cls": "<cls>", "sep": "<eos>", "pad": "<pad>", "mask": "<mask>"}


def spec_from_letters(
    vocab: dict[str, int], *, path: Path, config: TokenizerConfig
) -> TokenizerSpec:
    """Return the tokenizer of a vocabulary of letters, as transformers builds it.

    Every vocabulary entry is an added token. Other text between white space is one unknown token.
    """
    names = {part: getattr(config.names, part) or name for part, name in NAMES.items()}
    for part, name in names.items():
        if name not in vocab:
            raise TokenizerFileError(f"{path} lacks {name!r}, the {part} token; add its line")
    model: dict[str, Any] = {"type": "WordLevel", "vocab": vocab, "unk_token": names["unk"]}
    listed = {token.content: token for token in config.added_tokens or ()}
    added = [
        listed.get(piece, AddedTokenSpec(content=piece, id=number, special=piece in names.values()))
        for piece, number in vocab.items()
    ]
    cls, sep = ((names[part], vocab[names[part]]) for part in ("cls", "sep"))
    single, pair = bert_layouts(cls, sep)
    return TokenizerSpec(
        model=read_library(
            value_of({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}, path.name),
            "WordLevel",
        ),
        single=single,
        pair=pair,
        added_tokens=tuple(added),
        decoder=None,
        special=SpecialTokenNames(**names),
    )
