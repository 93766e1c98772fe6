"""Reads the post_processor of a tokenizer.json as two row layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.text.spec import PieceKind, TemplatePiece

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.text.json_reading import Node

__all__ = ["Layout", "bert_layouts", "read_template"]

Layout = tuple[TemplatePiece, ...]


def _text(kind: PieceKind, type_id: int) -> TemplatePiece:
    return TemplatePiece(kind=kind, type_id=type_id)


def bert_layouts(cls: tuple[str, int], sep: tuple[str, int]) -> tuple[Layout, Layout]:
    """Lay out ``[CLS] A [SEP]`` and ``[CLS] A [SEP] B [SEP]``, the second text in segment 1."""

    def special(token: tuple[str, int], type_id: int) -> TemplatePiece:
        return TemplatePiece(kind="special", type_id=type_id, tokens=(token[0],), ids=(token[1],))

    single = (special(cls, 0), _text("first", 0), special(sep, 0))
    return single, (*single, _text("second", 1), special(sep, 1))


def read_template(node: Node, ids: Mapping[str, int]) -> tuple[Layout, Layout]:
    """Read the layouts of a single text and of a pair."""
    if node.is_null:
        return (_text("first", 0),), (_text("first", 0), _text("second", 1))
    kind = node.get("type").text()
    if kind == "BertProcessing":
        node.only_keys(("type", "sep", "cls"))
        return bert_layouts(_token(node.get("cls"), ids), _token(node.get("sep"), ids))
    if kind != "TemplateProcessing":
        raise node.get("type").fail(
            f"the post-processor {kind} is not supported with WordPiece; TemplateProcessing and "
            "BertProcessing are"
        )
    node.only_keys(("type", "single", "pair", "special_tokens"))
    special = {
        name: _special(node.get("special_tokens").get(name), ids)
        for name in node.get("special_tokens").object()
    }
    single = _layout(node.get("single"), special)
    pair = _layout(node.get("pair"), special)
    _check_texts(node.get("single"), single, ["first"])
    _check_texts(node.get("pair"), pair, ["first", "second"])
    return single, pair


def _token(node: Node, ids: Mapping[str, int]) -> tuple[str, int]:
    items = node.items()
    if len(items) != 2:
        raise node.expected("a token and its id")
    token, number = items[0].text(), items[1].count()
    _check_id(node, token, number, ids)
    return token, number


def _check_id(node: Node, token: str, number: int, ids: Mapping[str, int]) -> None:
    if ids.get(token) != number:
        raise node.fail(
            f"{token!r} has the id {number} here but {ids.get(token)} in the vocabulary"
        )


def _special(node: Node, ids: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    node.only_keys(("id", "ids", "tokens"))
    tokens = tuple(item.text() for item in node.get("tokens").items())
    numbers = tuple(item.count() for item in node.get("ids").items())
    if len(tokens) != len(numbers):
        raise node.fail(f"{len(tokens)} tokens but {len(numbers)} ids")
    for token, number in zip(tokens, numbers, strict=True):
        _check_id(node, token, number, ids)
    return tokens, numbers


def _layout(node: Node, special: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]) -> Layout:
    out: list[TemplatePiece] = []
    for item in node.items():
        item.only_keys(("SpecialToken", "Sequence"))
        if len(item.object()) != 1:
            raise item.expected("either a SpecialToken or a Sequence")
        if "Sequence" in item.object():
            inner = item.get("Sequence")
            inner.only_keys(("id", "type_id"))
            kind: PieceKind = inner.get("id").one_of({"A": "first", "B": "second"})
            out.append(_text(kind, inner.get("type_id").count()))
            continue
        inner = item.get("SpecialToken")
        inner.only_keys(("id", "type_id"))
        name = inner.get("id").text()
        if name not in special:
            raise inner.fail(f"{name!r} is not among special_tokens")
        tokens, ids = special[name]
        type_id = inner.get("type_id").count()
        out.append(TemplatePiece(kind="special", type_id=type_id, tokens=tokens, ids=ids))
    return tuple(out)


def _check_texts(node: Node, layout: Layout, expected: list[str]) -> None:
    found = sorted(piece.kind for piece in layout if piece.kind != "special")
    if found != expected:
        names = " and ".join({"first": "A", "second": "B"}[kind] for kind in expected)
        raise node.fail(f"a template must use {names} exactly once")
