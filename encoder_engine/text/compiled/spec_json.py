"""Specifications as JSON, and back: what does not fit the fields' types is an error."""

from __future__ import annotations

import base64
import binascii
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from encoder_engine.errors import TokenizerFileError
from encoder_engine.strings import find_surrogate
from encoder_engine.text.spec import tokenizer as spec
from encoder_engine.text.spec import unigram as unigram_spec

__all__ = ["spec_from_value", "spec_to_value"]

# The member that names the type of an object; no field is called so.
TYPE = ""
# What the specifications' own readers allow.
MAX_SIZE = 2**64 - 1


def spec_to_value(value: Any) -> Any:
    """Turn a specification into JSON's types; of a dataclass, its name comes along."""
    if is_dataclass(value) and not isinstance(value, type):
        members = {field.name: spec_to_value(getattr(value, field.name)) for field in fields(value)}
        return {TYPE: type(value).__name__} | members
    if isinstance(value, tuple):
        return [spec_to_value(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def spec_from_value(value: Any) -> spec.TokenizerSpec:
    """Turn JSON's types back into a specification.

    Raises:
        TokenizerFileError: a value is not of the type that its field has.

    """
    return _read(value, spec.TokenizerSpec, "the specification")  # type: ignore[no-any-return]


@cache
def _hints(cls: type) -> dict[str, Any]:
    known = {**vars(unigram_spec), **vars(spec), "Mapping": Mapping, "Sequence": Sequence}
    # Of two types with one name, the class means that of its own module.
    return get_type_hints(cls, {**known, **vars(sys.modules[cls.__module__])})


def _read(value: Any, hint: Any, where: str) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        origin = get_origin(kind) or kind
        if isinstance(origin, type) and is_dataclass(origin):
            if isinstance(value, dict) and value.get(TYPE) == origin.__name__:
                return _read_members(value, origin, where)
        elif origin is Literal:
            if isinstance(value, str) and value in get_args(kind):
                return value
        elif origin in (tuple, Sequence) and isinstance(value, list):
            item = get_args(kind)[0]
            return tuple(_read(part, item, f"{where}[{i}]") for i, part in enumerate(value))
        elif origin is Mapping and value == {}:
            return {}
        elif origin is bytes and isinstance(value, str):
            return _read_bytes(value, where)
        elif _is_plain(value, origin):
            return value
    shown = repr(value)
    raise TokenizerFileError(f"{where} is damaged: {shown if len(shown) <= 60 else shown[:57]}")


def _read_members(value: dict[str, Any], cls: Any, where: str) -> Any:
    hints = _hints(cls)
    names = [field.name for field in fields(cls)]
    if value.keys() != {TYPE, *names}:
        raise TokenizerFileError(f"{where} is damaged: {cls.__name__} has other members")
    return cls(**{name: _read(value[name], hints[name], f"{where}.{name}") for name in names})


def _read_bytes(value: str, where: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenizerFileError(f"{where} is damaged: {error}") from error


def _is_plain(value: Any, kind: Any) -> bool:
    """Whether a value is a flag, a size, a text without lone surrogates, or none."""
    if kind is types.NoneType or kind is bool:
        return type(value) is kind
    if kind is int:
        return type(value) is int and 0 <= value <= MAX_SIZE
    return kind is str and isinstance(value, str) and find_surrogate(value) is None
