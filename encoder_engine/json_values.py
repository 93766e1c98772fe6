"""Reads JSON files strictly, and their values by type; errors name the file and the dotted path."""

from __future__ import annotations

import contextlib
import gc
import json
import types
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from encoder_engine.dataclass import dataclass
from encoder_engine.files import once, read_text
from encoder_engine.strings import find_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from encoder_engine.errors import EncoderEngineError

__all__ = [
    "MAX_INTEGER",
    "JsonSource",
    "JsonValue",
    "distinct",
    "nearest",
    "parse_json",
    "read_json",
    "read_value",
]

Read = TypeVar("Read")
# What a signed number of 32 bits holds: no table, layer or text is larger.
MAX_INTEGER = 2**31 - 1
_SHOWN = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonSource:
    """The source of JSON values, and how errors about them are raised.

    name: the file's name in messages; empty: messages have only the paths of values.
    error: the class of errors.
    unknown: the class of errors of unknown keys; None: ``error``.
    mend: the end of messages, with advice.
    null_is_absent: a member that is null counts as absent.
    """

    name: str
    error: type[EncoderEngineError]
    unknown: type[EncoderEngineError] | None = None
    mend: str = "; correct the file, or copy it again"
    null_is_absent: bool = False


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value, its dotted path in the source, and whether its object has the key at all.

    A method that reads a type, such as :meth:`string`, returns the value, and raises the source's
    error for a value of another type. ``default``: returned for an absent value.
    """

    value: Any
    source: JsonSource
    path: str = ""
    present: bool = True

    @property
    def where(self) -> str:
        """The file's name and the value's dotted path, for messages."""
        return ": ".join(part for part in (self.source.name, self.path) if part) or "it"

    @property
    def is_null(self) -> bool:
        """True if the value is null or absent."""
        return self.value is None

    def fail(self, message: str) -> EncoderEngineError:
        """Return an error whose message names the file and path of this value."""
        return self.source.error(f"{self.where}: {message}")

    def must_be(self, kind: str, hint: str = "") -> EncoderEngineError:
        """Return an error that says what was expected, ``kind``, and what was found."""
        came = f", got {_shown(self.value)}" if self.present else ", but is missing"
        return self.source.error(f"{self.where} must be {kind}{came}{hint}{self.source.mend}")

    def at(self, value: Any, path: str) -> Self:
        """Wrap another value of the same source; ``path``: appended to this one's, as ``[3]``."""
        return type(self)(value, self.source, self.path + path)

    def object(self) -> dict[str, Any]:
        """Return the value as a dict; raise the source's error if it is not an object."""
        if not isinstance(self.value, dict):
            raise self.must_be("an object")
        return self.value

    def items(self) -> list[Self]:
        """Return the value's items; raise the source's error if it is not a list."""
        if not isinstance(self.value, (list, tuple)):
            raise self.must_be("a list")
        return [self.at(item, f"[{index}]") for index, item in enumerate(self.value)]

    def get(self, key: str) -> Self:
        """Return an object's member; its value is null if absent."""
        members = self.object()
        path = f"{self.path}.{key}" if self.path else key
        return type(self)(members.get(key), self.source, path, key in members)

    def members(self) -> dict[str, Self]:
        """Return the members of an object, by key; raise the source's error for others."""
        return {key: self.get(key) for key in self.object()}

    def kind(self) -> str:
        """Return the member ``type`` of an object, a string."""
        return self.get("type").string()

    def only_keys(self, known: Iterable[str]) -> None:
        """Raise an error for a member of an object that is not among ``known``."""
        known = list(known)
        unknown = sorted(set(self.object()) - set(known), key=str)
        if unknown:
            hints = filter(None, (nearest(str(key), known) for key in unknown))
            raise (self.source.unknown or self.source.error)(
                f"{self.where} has keys that are unknown and might change the result: "
                f"{', '.join(map(repr, unknown))}{next(hints, '')}; known: {', '.join(known)}"
            )

    def optional(self, read: Callable[[Self], Read]) -> Read | None:
        """Return ``read`` of this value, a method of this class; None if it is null or absent."""
        return None if self.value is None else read(self)

    def string(self, *, surrogates: bool = False) -> str:
        """Read a string; ``surrogates``: allow lone surrogates, which file names may contain."""
        if not isinstance(self.value, str):
            raise self.must_be("a string")
        if not surrogates and find_surrogate(self.value) is not None:
            raise self.must_be("a string without lone surrogates")
        return self.value

    def boolean(self, default: bool | None = None) -> bool:
        """Return the value if it is true or false; raise otherwise."""
        value = self._or(default)
        if not isinstance(value, bool):
            raise self.must_be("true or false")
        return value

    def integer(
        self, default: int | None = None, *, least: int | None = 0, most: int | None = MAX_INTEGER
    ) -> int:
        """Read an integer from ``least`` to ``most``; None: without a limit."""
        value = self._or(default)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or (least is not None and value < least):
            raise self.must_be("an integer" if least is None else f"an integer of at least {least}")
        if most is not None and value > most:
            raise self.must_be(f"an integer of at most {most}")
        return int(value)

    def positive(self, default: int | None = None, *, most: int | None = MAX_INTEGER) -> int:
        """Return the value if it is an integer from 1 to ``most``; raise otherwise."""
        return self.integer(default, least=1, most=most)

    def number(
        self,
        default: float | None = None,
        *,
        least: float | None = None,
        below: float | None = None,
    ) -> float:
        """Read a number from ``least`` to below ``below``; None: without a limit."""
        value = self._or(default)
        # Every comparison with NaN is false.
        valid = (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and (least is None or value >= least)
            and (below is None or value < below)
        )
        if not valid:
            limits = [
                *([] if least is None else [f"of at least {least:g}"]),
                *([] if below is None else [f"below {below:g}"]),
            ]
            raise self.must_be(" ".join(["a number", " and ".join(limits)]).strip())
        try:
            return float(value)
        except OverflowError:
            raise self.must_be("a number below 1e308") from None

    def one_of(self, known: Mapping[Any, Any], default: str | None = None) -> Any:
        """Return what ``known`` maps the value to; raise the source's error for an unknown one."""
        value = self._or(default)
        if not isinstance(value, Hashable) or value not in known:
            names = [str(name) for name in known]
            raise self.must_be(f"one of {', '.join(names)}", nearest(str(value), names))
        return known[value]

    def _or(self, default: Any) -> Any:
        null = self.value is None and self.source.null_is_absent
        return default if null or not self.present else self.value

    def read_as(self, kind: Any) -> Any:
        """Return the value as an object of the annotated type ``kind``.

        kind: a dataclass, whose fields are the object's keys; ``Literal``; a tuple; a mapping;
            ``X | None``; or a plain type.
        """
        if is_dataclass(kind):
            return self._read_fields(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            (inner,) = (argument for argument in arguments if argument is not types.NoneType)
            return self.optional(lambda value: value.read_as(inner))
        if origin is Literal:
            return self.one_of({name: name for name in arguments})
        if origin is tuple:
            items = self.items()
            kinds = [arguments[0]] * len(items) if arguments[-1] is ... else list(arguments)
            if len(kinds) != len(items):
                raise self.must_be(f"a list of {len(kinds)}")
            return tuple(item.read_as(one) for item, one in zip(items, kinds, strict=True))
        if origin is not None and issubclass(origin, Mapping):
            return {key: member.read_as(arguments[1]) for key, member in self.members().items()}
        return _PLAIN[kind](self)

    def _read_fields(self, kind: Any) -> Any:
        """Make a dataclass from an object's members; missing keys get their defaults."""
        self.only_keys([field.name for field in fields(kind)])
        hints = get_type_hints(kind)
        read = {}
        for field in fields(kind):
            value = self.get(field.name)
            if value.present or field.default is field.default_factory is MISSING:
                read[field.name] = value.read_as(hints[field.name])
        return kind(**read)


_PLAIN: dict[Any, Callable[[JsonValue], Any]] = {
    Any: lambda found: found.value,
    bool: lambda found: found.boolean(),
    float: lambda found: found.number(),
    int: lambda found: found.integer(least=None, most=None),
    str: lambda found: found.string(surrogates=True),
}


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the known name nearest to ``name``, or ""."""
    import difflib  # not before: only a refusal asks

    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def read_value(path: Path, error: type[EncoderEngineError], **options: Any) -> JsonValue:
    """Parse a JSON file and wrap its value; ``options``: further fields of :class:`JsonSource`."""
    value = once("json", path, lambda path: read_json(path, error))
    return JsonValue(value, JsonSource(name=str(path), error=error, **options))


def read_json(path: Path, error: type[EncoderEngineError]) -> Any:
    """Parse a JSON file; raises ``error`` for invalid JSON and for duplicate keys."""
    return parse_json(read_text(path, error), path, error)


def parse_json(
    text: str,
    path: Path,
    error: type[EncoderEngineError],
    *,
    parse_float: Callable[[str], float] | None = None,
) -> Any:
    """Parse the text of a JSON file; see :func:`read_json`.

    ``parse_float``: parses numbers with a decimal point or an exponent, instead of float().
    """
    try:
        with _no_collection():
            return json.loads(text, object_pairs_hook=distinct, parse_float=parse_float)
    except json.JSONDecodeError as failure:
        raise error(
            f"{path}, line {failure.lineno}: not valid JSON ({failure.msg}); copy it again"
        ) from failure
    except (ValueError, RecursionError) as failure:
        raise error(f"{path} is not usable JSON: {failure}") from failure


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector, which would scan a large file's values repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's pairs as a dict; raises ``ValueError`` for a key that occurs twice."""
    merged = dict(pairs)
    if len(merged) != len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!a} occurs twice in one object")
    return merged
