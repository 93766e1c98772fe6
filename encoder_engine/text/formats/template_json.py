"""Reads the post_processor of a tokenizer.json: the templates of a text and of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.text.formats.steps_json import listed
from encoder_engine.text.spec.library import OffsetTrim
from encoder_engine.text.spec.tokenizer import PieceKind, TemplatePiece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from encoder_engine.json_values import JsonValue

    IdOf = Callable[[str], int | None]

__all__ = [
    "Layout",
    "bert_layouts",
    "check_trimmed_pieces",
    "read_template",
    "read_trim",
    "roberta_layouts",
]

Layout = tuple[TemplatePiece, ...]
BYTE_LEVEL_SPACE = "\u0120"


def _text(kind: PieceKind, type_id: int) -> TemplatePiece:
    return TemplatePiece(kind=kind, type_id=type_id)


def bert_layouts(cls: tuple[str, int], sep: tuple[str, int]) -> tuple[Layout, Layout]:
    """Return ``[CLS] A [SEP]`` and ``[CLS] A [SEP] B [SEP]``; ``B [SEP]`` has token type 1."""
    single = (_fixed(cls, 0), _text("first", 0), _fixed(sep, 0))
    return single, (*single, _text("second", 1), _fixed(sep, 1))


def roberta_layouts(cls: tuple[str, int], sep: tuple[str, int]) -> tuple[Layout, Layout]:
    """Return RoBERTa's templates ``<s> A </s>`` and ``<s> A </s> </s> B </s>``, of token type 0."""
    single = (_fixed(cls, 0), _text("first", 0), _fixed(sep, 0))
    return single, (*single, _fixed(sep, 0), _text("second", 0), _fixed(sep, 0))


def _fixed(token: tuple[str, int], type_id: int) -> TemplatePiece:
    return TemplatePiece(kind="special", type_id=type_id, tokens=(token[0],), ids=(token[1],))


def read_trim(node: JsonValue) -> OffsetTrim | None:
    """Return how ``trim_offsets`` leaves white space out of offsets; None: it does not."""
    trims: list[OffsetTrim] = []
    for item in listed(node, "processors"):
        if item.kind() not in ("ByteLevel", "RobertaProcessing"):
            continue
        if item.kind() == "ByteLevel":
            item.only_keys(("type", "add_prefix_space", "trim_offsets", "use_regex"))
        prefixed = item.get("add_prefix_space").boolean(default=True)
        if item.get("trim_offsets").boolean(default=True):
            trims.append(OffsetTrim(add_prefix_space=prefixed))
    if len(trims) > 1:
        raise node.fail("two post-processors that trim offsets are not supported")
    kinds = [item.kind() for item in listed(node, "processors")]
    if trims and trims[0].add_prefix_space and "ByteLevel" in kinds[1:]:
        raise node.fail("ByteLevel behind a template, with add_prefix_space, is not supported")
    return trims[0] if trims else None


def check_trimmed_pieces(node: JsonValue, vocab: Iterable[str]) -> None:
    """Raise TokenizerFileError for ``trim_offsets`` if a piece has white space at its ends.

    U+0120, which stands for a space in byte-level vocabularies, counts as white space, as in
    Hugging Face tokenizers. Only offsets of BPE and WordLevel pieces are trimmed here; offsets of
    added tokens and unknown text are trimmed for every model.
    """
    if read_trim(node) is None:
        return
    for piece in vocab:
        if piece != piece.strip().strip(BYTE_LEVEL_SPACE):
            raise node.fail(
                f"trim_offsets would cut the offsets of the piece {piece!r}, which is supported "
                "with BPE and WordLevel only; set it to false"
            )


def read_template(node: JsonValue, id_of: IdOf) -> tuple[Layout, Layout]:
    """Read the templates of a text and of a pair; ``id_of`` returns a token's id, or None."""
    layouts = [item for item in listed(node, "processors") if item.kind() != "ByteLevel"]
    if len(layouts) > 1:
        raise node.fail(
            "two post-processors that lay rows out are not supported, and the tokenizers library "
            "fails on two templates too: keep one"
        )
    if not layouts:
        return (_text("first", 0),), (_text("first", 0), _text("second", 1))
    [node] = layouts
    kind = node.kind()
    if kind == "BertProcessing":
        node.only_keys(("type", "sep", "cls"))
        return bert_layouts(_token(node.get("cls"), id_of), _token(node.get("sep"), id_of))
    if kind == "RobertaProcessing":
        node.only_keys(("type", "sep", "cls", "trim_offsets", "add_prefix_space"))
        return roberta_layouts(_token(node.get("cls"), id_of), _token(node.get("sep"), id_of))
    if kind != "TemplateProcessing":
        raise node.get("type").fail(
            f"the post-processor {kind} is not supported; TemplateProcessing, BertProcessing, "
            "RobertaProcessing, ByteLevel and a Sequence of them are"
        )
    node.only_keys(("type", "single", "pair", "special_tokens"))
    special = {
        name: _special(node.get("special_tokens").get(name), id_of)
        for name in node.get("special_tokens").object()
    }
    single = _layout(node.get("single"), special)
    pair = _layout(node.get("pair"), special)
    _check_texts(node.get("single"), single, ["first"])
    _check_texts(node.get("pair"), pair, ["first", "second"])
    return single, pair


def _token(node: JsonValue, id_of: IdOf) -> tuple[str, int]:
    items = node.items()
    if len(items) != 2:
        raise node.must_be("a token and its id")
    token, number = items[0].string(), items[1].integer()
    _check_id(node, token, number, id_of)
    return token, number


def _check_id(node: JsonValue, token: str, number: int, id_of: IdOf) -> None:
    if id_of(token) != number:
        raise node.fail(f"{token!r} has the id {number} here but {id_of(token)} in the vocabulary")


def _special(node: JsonValue, id_of: IdOf) -> tuple[tuple[str, ...], tuple[int, ...]]:
    node.only_keys(("id", "ids", "tokens"))
    tokens = tuple(item.string() for item in node.get("tokens").items())
    numbers = tuple(item.integer() for item in node.get("ids").items())
    if len(tokens) != len(numbers):
        raise node.fail(f"{len(tokens)} tokens but {len(numbers)} ids")
    for token, number in zip(tokens, numbers, strict=True):
        _check_id(node, token, number, id_of)
    return tokens, numbers


def _layout(
    node: JsonValue, special: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]
) -> Layout:
    out: list[TemplatePiece] = []
    for item in node.items():
        item.only_keys(("SpecialToken", "Sequence"))
        if len(item.object()) != 1:
            raise item.must_be("either a SpecialToken or a Sequence")
        if "Sequence" in item.object():
            inner = item.get("Sequence")
            inner.only_keys(("id", "type_id"))
            kind: PieceKind = inner.get("id").one_of({"A": "first", "B": "second"})
            out.append(_text(kind, inner.get("type_id").integer()))
            continue
        inner = item.get("SpecialToken")
        inner.only_keys(("id", "type_id"))
        name = inner.get("id").string()
        if name not in special:
            raise inner.fail(f"{name!r} is not among special_tokens")
        tokens, ids = special[name]
        type_id = inner.get("type_id").integer()
        out.append(TemplatePiece(kind="special", type_id=type_id, tokens=tokens, ids=ids))
    return tuple(out)


def _check_texts(node: JsonValue, layout: Layout, expected: list[str]) -> None:
    found = sorted({piece.kind for piece in layout if piece.kind != "special"})
    if found != expected:
        names = " and ".join({"first": "A", "second": "B"}[kind] for kind in expected)
        raise node.fail(f"a template must use {names}, and no other text")
