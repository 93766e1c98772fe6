"""Reads vocab.txt, BERT's own format: one piece per line; the line number is the id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.json_reading import read_text
from encoder_engine.text.formats.template_json import bert_layouts
from encoder_engine.text.spec.tokenizer import (
    AddedTokenSpec,
    BertNormalizerSpec,
    SpecialTokenNames,
    TokenizerSpec,
    WordPieceDecoderSpec,
    WordPieceSpec,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_line", "read_vocab_txt", "spec_from_vocab"]


def is_line(token: str) -> bool:
    """Return whether a token can be written to vocab.txt as one line and read back unchanged."""
    return "\n" not in token and "\r" not in token


def read_vocab_txt(path: Path) -> dict[str, int]:
    """Read the pieces of a vocab.txt, and their ids: the numbers of their lines, from 0.

    A line ends at a line feed, or a carriage return and a line feed. Every other character belongs
    to the piece: the vocabulary of Chinese BERT has U+2028 and U+3000, and an empty line is the
    piece "".
    """
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise TokenizerFileError(f"{path} is empty")
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if token in vocab:
            raise TokenizerFileError(
                f"{path}: lines {vocab[token] + 1} and {number + 1} are both {token!r}"
            )
        vocab[token] = number
    return vocab


def spec_from_vocab(
    vocab: dict[str, int],
    *,
    path: Path,
    normalizer: BertNormalizerSpec,
    names: SpecialTokenNames,
    more_added: tuple[AddedTokenSpec, ...] = (),
) -> TokenizerSpec:
    """Return BERT's tokenizer with a vocabulary that was read from vocab.txt.

    ``names``: its special tokens, which become added tokens, with those of ``more_added``. Raises
    :class:`TokenizerFileError` if ``path`` lacks the unknown, the class or the separator token.
    """
    for part in ("unk", "cls", "sep"):
        name = getattr(names, part)
        if name not in vocab:
            raise TokenizerFileError(
                f"{path} lacks {name!r}, the {part} token; add its line, or name another in "
                "special_tokens_map.json"
            )
    unk, cls, sep = (str(name) for name in (names.unk, names.cls, names.sep))
    known = [name for name in (names.pad, unk, cls, sep, names.mask) if name in vocab]
    special = [
        AddedTokenSpec(content=name, id=vocab[name])
        for name in dict.fromkeys(known)
        if name is not None and name not in {token.content for token in more_added}
    ]
    single, pair = bert_layouts((cls, vocab[cls]), (sep, vocab[sep]))
    added = sorted([*special, *more_added], key=lambda token: token.id)
    return TokenizerSpec(
        model=WordPieceSpec(
            vocab=vocab,
            unk_token=unk,
            continuing_subword_prefix="##",
            max_input_chars_per_word=100,
            normalizer=normalizer,
        ),
        single=single,
        pair=pair,
        added_tokens=tuple(added),
        decoder=WordPieceDecoderSpec(prefix="##", cleanup=True),
        special=SpecialTokenNames(
            unk=unk,
            cls=cls,
            sep=sep,
            pad=names.pad if names.pad in vocab else None,
            mask=names.mask if names.mask in vocab else None,
        ),
    )
