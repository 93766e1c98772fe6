"""Dataclasses whose methods are shared, not generated.

The standard library writes and compiles the source of six methods for each frozen dataclass, and a
hundred of them stand before the first vector of a new process.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_MISSING = dataclasses.MISSING

if not TYPE_CHECKING:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass, as :func:`dataclasses.dataclass` does.

        With ``frozen=True``, and perhaps ``kw_only=True`` or ``eq=False``, its methods are those of
        this module; any other class is left to the standard library.
        """
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if not options.get("frozen") or not options.keys() <= {"frozen", "kw_only", "eq"}:
            return dataclasses.dataclass(cls, **options)
        return _share_methods(cls, options.get("kw_only", False), options.get("eq", True))


def _share_methods(cls: type, kw_only: bool, eq: bool) -> type:
    """Make a class a frozen dataclass."""
    own = set(vars(cls))
    if vars(cls).get("__hash__") is None:
        own.discard("__hash__")  # Python's, of a class that defines ``__eq__`` alone
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    methods = {"__init__": _initializer(cls), "__repr__": _printer(cls)}
    if eq:
        methods["__eq__"], methods["__hash__"] = _comparison(cls)
    methods |= {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
    methods["__signature__"] = _Signature()
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _initializer(cls: Any) -> Any:
    fields = dataclasses.fields(cls)
    names = {x.name: None for x in fields if x.init}
    places = [x.name for x in fields if x.init and not x.kw_only]
    factories = {x.name: x.default_factory for x in fields if x.default_factory is not _MISSING}
    defaults = {x.name: x.default for x in fields if x.default is not _MISSING}

    def __init__(self: Any, /, *given: Any, **values: Any) -> None:  # noqa: N807 - becomes a method
        if len(given) > len(places):
            raise TypeError(
                f"{cls.__qualname__}() takes {len(places)} positional arguments, got {len(given)}"
            )
        for name, value in zip(places, given, strict=False):
            if name in values:
                raise TypeError(f"{cls.__qualname__}() got several values for {name!r}")
            values[name] = value
        for name in values:
            if name not in names:
                raise TypeError(f"{cls.__qualname__}() got an unexpected keyword argument {name!r}")
        for name in names:
            if name in values:
                object.__setattr__(self, name, values[name])
            elif name in defaults:
                object.__setattr__(self, name, defaults[name])
            elif name not in factories:
                raise TypeError(f"{cls.__qualname__}() lacks the argument {name!r}")
        for name, factory in factories.items():
            if name not in values:
                object.__setattr__(self, name, factory())
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return __init__


def _printer(cls: Any) -> Any:
    names = [x.name for x in dataclasses.fields(cls) if x.repr]

    def __repr__(self: Any) -> str:  # noqa: N807 - becomes a method
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _comparison(cls: Any) -> tuple[Any, Any]:
    names = [x.name for x in dataclasses.fields(cls) if x.compare]

    def key(instance: Any) -> tuple[Any, ...]:
        return tuple([getattr(instance, name) for name in names])

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807 - becomes a method
        return key(self) == key(other) if type(self) is type(other) else NotImplemented

    return __eq__, lambda self: hash(key(self))


def _refuse_setting(_self: Any, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class _Signature:
    """A class's signature, made where :func:`inspect.signature` asks for it."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        fields = []
        for x in dataclasses.fields(cls):
            if x.init:
                default: dict[str, Any] = {
                    "default": x.default,
                    "default_factory": x.default_factory,
                }
                field = dataclasses.field(**default, kw_only=x.kw_only)
                fields.append((x.name, x.type, field))
        return inspect.signature(dataclasses.make_dataclass(cls.__name__, fields))
