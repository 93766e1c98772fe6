"""JSON values are read by type; errors name the file, the path, what was expected and what came."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pytest

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.json_values import JsonSource, JsonValue, read_value
from encoder_engine.vectors.manifest import UnexpectedValueError, check_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = JsonSource(name="a.json", error=ConfigError, mend="; mend it")
VALUES = {
    "text": "a",
    "flag": True,
    "whole": 3,
    "half": 0.5,
    "none": None,
    "list": [1, "b"],
    "inner": {"type": "x", "nan": math.nan},
    "broken": "\ud800",
}


def value(content: Any = VALUES, **changed: Any) -> JsonValue:
    return JsonValue(content, JsonSource(**{**_fields(SOURCE), **changed}))


def _fields(source: JsonSource) -> dict[str, Any]:
    return {name: getattr(source, name) for name in JsonSource.__slots__}


def test_values_are_read_by_type() -> None:
    top = value()
    assert (top.get("text").string(), top.get("flag").boolean()) == ("a", True)
    assert (top.get("whole").integer(), top.get("half").number(least=0, below=1)) == (3, 0.5)
    assert [item.value for item in top.get("list").items()] == [1, "b"]
    assert (top.get("inner").kind(), top.get("text").one_of({"a": 7})) == ("x", 7)
    assert (top.get("absent").positive(5), top.get("absent").boolean(default=False)) == (5, False)
    assert top.get("none").optional(JsonValue.string) is None
    assert top.get("broken").string(surrogates=True) == "\ud800"


REFUSED: dict[str, tuple[Callable[[JsonValue], object], str]] = {
    "a number as text": (
        lambda top: top.get("whole").string(),
        "a.json: whole must be a string, got 3; mend it",
    ),
    "a lone surrogate": (
        lambda top: top.get("broken").string(),
        "a.json: broken must be a string without lone surrogates, got '\\ud800'; mend it",
    ),
    "true as a number": (
        lambda top: top.get("flag").integer(),
        "a.json: flag must be an integer of at least 0, got True; mend it",
    ),
    "a large integer": (
        lambda top: top.get("whole").integer(most=2),
        "a.json: whole must be an integer of at most 2, got 3; mend it",
    ),
    "NaN within limits": (
        lambda top: top.get("inner").get("nan").number(least=0, below=1),
        "a.json: inner.nan must be a number of at least 0 and below 1, got nan; mend it",
    ),
    "an item": (
        lambda top: top.get("list").items()[1].boolean(),
        "a.json: list[1] must be true or false, got 'b'; mend it",
    ),
    "a member of no object": (
        lambda top: top.get("list").get("a"),
        "a.json: list must be an object, got [1, 'b']; mend it",
    ),
    "an absent value": (
        lambda top: top.get("inner").get("size").positive(),
        "a.json: inner.size must be an integer of at least 1, but is missing; mend it",
    ),
    "null in place of a default": (
        lambda top: top.get("none").boolean(default=True),
        "a.json: none must be true or false, got None; mend it",
    ),
    "an unknown name": (
        lambda top: top.get("inner").get("type").one_of({"xy": 1, "b": 2}),
        "a.json: inner.type must be one of xy, b, got 'x'; did you mean 'xy'?; mend it",
    ),
    "an unknown key": (
        lambda top: top.get("inner").only_keys(["typ", "nan"]),
        "a.json: inner has keys that are unknown and might change the result: 'type'; did you mean "
        "'typ'?; known: typ, nan",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_type_is_refused_with_all_that_mends_it(name: str) -> None:
    read, message = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        read(value())
    assert str(caught.value) == message


def test_null_counts_as_absent_where_the_source_says_so() -> None:
    assert value(null_is_absent=True).get("none").boolean(default=True)


def test_unknown_keys_have_an_error_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}', "utf-8")
    found = read_value(tmp_path / "a.json", ConfigError, unknown=UnsupportedFeatureError)
    with pytest.raises(UnsupportedFeatureError, match=r"a\.json has keys .* 'a'"):
        found.only_keys(["size"])


@dataclass(frozen=True, kw_only=True)
class Inner:
    """An object within another."""

    sizes: tuple[int, ...] = ()
    pair: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A field of each type."""

    name: str
    kind: Literal["a", "b"] = "a"
    share: float | None = None
    inner: Inner = field(default_factory=Inner)
    more: dict[str, int] = field(default_factory=dict)


def test_a_dataclass_is_read_by_its_annotations() -> None:
    stated = {
        "name": "n",
        "share": 1,
        "inner": {"sizes": [1, -2], "pair": [3, 4]},
        "more": {"a": 1},
    }
    found = value(stated).read_as(Outer)
    inner = Inner(sizes=(1, -2), pair=(3, 4.0))
    assert found == Outer(name="n", share=1.0, inner=inner, more={"a": 1})
    for wrong, message in (
        ({}, "name must be a string, but is missing"),
        ({"name": "n", "kind": "c"}, "kind must be one of a, b"),
        ({"name": "n", "inner": {"pair": [1]}}, "inner.pair must be a list of 2"),
        ({"name": "n", "inner": {"sizes": [1.5]}}, r"inner.sizes\[0\] must be an integer"),
        ({"name": "n", "nam": 1}, "'nam'; did you mean 'name'"),
    ):
        with pytest.raises(ConfigError, match=message):
            value(wrong).read_as(Outer)


def test_a_plan_without_a_value_that_may_be_null_is_refused() -> None:
    model = {"fingerprint": "0" * 64, "dtype": "float32", "device": "cpu", "pooling": ["mean"]}
    with pytest.raises(UnexpectedValueError, match=r"plan\.model\.quantization .* is missing"):
        check_plan({"model": model})
