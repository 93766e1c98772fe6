"""Dataclasses whose methods are shared, not generated.

The standard library writes and compiles the source of six methods for each frozen dataclass, about
1 ms a class. A hundred classes were a quarter of the time to the first vector of a new process.
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

        With ``frozen=True, kw_only=True``, and ``eq=False`` or not, its methods are those of this
        module; any other class is left to the standard library.
        """
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if {**options, "eq": True} != {"frozen": True, "kw_only": True, "eq": True}:
            return dataclasses.dataclass(cls, **options)
        return _share_methods(cls, compares=options.get("eq", True))


def _share_methods(cls: type, *, compares: bool) -> type:
    """Make a class a frozen dataclass of keywords."""
    own = set(vars(cls))
    if vars(cls).get("__hash__") is None:
        own.discard("__hash__")  # Python's, of a class that defines ``__eq__`` alone
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    methods = {"__init__": _initializer(cls), "__repr__": _printer(cls)}
    if compares:
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
    factories = {x.name: x.default_factory for x in fields if x.default_factory is not _MISSING}
    defaults = {x.name: x.default for x in fields if x.default is not _MISSING}

    def __init__(self: Any, /, **values: Any) -> None:  # noqa: N807 - becomes a method
        for name in values:
            if name not in names:
                raise TypeError(f"{cls.__qualname__}() got an unexpected keyword argument {name!r}")
        for name in names:
            if name in values:
                object.__setattr__(self, name, values[name])
            elif name in defaults:
                object.__setattr__(self, name, defaults[name])
            elif name not in factories:
                raise TypeError(f"{cls.__qualname__}() lacks the keyword argument {name!r}")
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
        fields = [
            (
                x.name,
                x.type,
                dataclasses.field(default=x.default, default_factory=x.default_factory),
            )
            for x in dataclasses.fields(cls)
            if x.init
        ]
        return inspect.signature(dataclasses.make_dataclass(cls.__name__, fields, kw_only=True))
