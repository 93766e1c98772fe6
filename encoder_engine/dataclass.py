"""Frozen dataclasses whose methods are closures instead of generated code, to import faster.

Loading a model imports some hundred frozen dataclasses. For each of them the standard library
writes and compiles the source of six methods; here they are closures over the fields.
"""

from __future__ import annotations

import dataclasses
import inspect
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass

__all__ = ["dataclass"]

_MISSING = dataclasses.MISSING

if not TYPE_CHECKING:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass, as :func:`dataclasses.dataclass` does.

        With ``frozen=True``, and perhaps ``kw_only=True`` or ``eq=False``, the class gets this
        module's methods; other classes, and classes with an ``InitVar``, are left to the standard
        library.
        """
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        hints = vars(cls).get("__annotations__", {}).values()
        if (
            not options.get("frozen")
            or not options.keys() <= {"frozen", "kw_only", "eq"}
            or any("InitVar" in str(hint) for hint in hints)
        ):
            return dataclasses.dataclass(cls, **options)
        return _share_methods(cls, options.get("kw_only", False), options.get("eq", True))


def _share_methods(cls: Any, kw_only: bool, eq: bool) -> Any:
    """Make ``cls`` a frozen dataclass with this module's methods."""
    own = set(vars(cls))
    for name in ("__setattr__", "__delattr__"):
        if name in own:
            raise TypeError(f"Cannot overwrite attribute {name} in class {cls.__name__}")
    if "__eq__" in own and vars(cls)["__hash__"] is None:
        own.discard("__hash__")  # Python's, where a class defines only __eq__
    # Of a derived class the standard library compares whether its bases are frozen, too.
    derived = any("__dataclass_params__" in vars(base) for base in cls.__mro__[1:])
    dataclasses.dataclass(init=False, repr=False, eq=False, frozen=derived, kw_only=kw_only)(cls)
    for flag, value in {"init": True, "repr": True, "eq": eq, "frozen": True}.items():
        setattr(cls.__dataclass_params__, flag, value)
    methods = {"__init__": _make_init(cls), "__repr__": _make_repr(cls)}
    if eq:
        methods["__eq__"], methods["__hash__"] = _make_comparison(cls)
    for name, method in methods.items():
        if name not in own:
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
    cls.__setattr__, cls.__delattr__ = _set, _delete
    if "__init__" not in own:
        cls.__signature__ = _Signature(cls.__init__)
    return cls


def _make_init(cls: Any) -> Any:
    fields = [x for x in dataclasses.fields(cls) if x.init]
    names = {x.name: None for x in fields}
    places = [x.name for x in fields if not x.kw_only]
    defaults = {x.name: x.default for x in fields if x.default is not _MISSING}
    # Those of fields that are no arguments, too.
    factories = {
        x.name: x.default_factory
        for x in dataclasses.fields(cls)
        if x.default_factory is not _MISSING
    }
    required = [name for name in names if name not in defaults and name not in factories]
    optional = [name for name in places if name not in required]
    for name in places[places.index(optional[0]) :] if optional else ():
        if name in required:
            raise TypeError(f"non-default argument {name!r} follows default argument")
    finishes = hasattr(cls, "__post_init__")

    def __init__(self: Any, /, *given: Any, **values: Any) -> None:  # noqa: N807 - becomes a method
        if given:
            if len(given) > len(places):
                raise TypeError(
                    f"{cls.__qualname__}() takes {len(places)} positional arguments, "
                    f"got {len(given)}"
                )
            for name, value in zip(places, given, strict=False):
                if name in values:
                    raise TypeError(f"{cls.__qualname__}() got several values for {name!r}")
                values[name] = value
        for name in required:
            if name not in values:
                raise TypeError(f"{cls.__qualname__}() lacks the argument {name!r}")
        for name, value in values.items():
            if name not in names:
                raise TypeError(f"{cls.__qualname__}() got an unexpected keyword argument {name!r}")
            object.__setattr__(self, name, value)
        for name, default in defaults.items():
            if name not in values:
                object.__setattr__(self, name, default)
        for name, factory in factories.items():
            if name not in values:
                object.__setattr__(self, name, factory())
        if finishes:
            self.__post_init__()

    return __init__


def _make_repr(cls: Any) -> Any:
    names = [x.name for x in dataclasses.fields(cls) if x.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807 - becomes a method
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return __repr__


def _make_comparison(cls: Any) -> tuple[Any, Any]:
    fields = dataclasses.fields(cls)
    compared = _make_key([x.name for x in fields if x.compare])
    hashed = _make_key([x.name for x in fields if (x.compare if x.hash is None else x.hash)])

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807 - becomes a method
        return compared(self) == compared(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807 - becomes a method
        return hash(hashed(self))

    return __eq__, __hash__


def _make_key(names: list[str]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    # Of one name, attrgetter returns no tuple.
    return lambda instance: tuple([getattr(instance, name) for name in names])


def _set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(instance: Any, name: str) -> bool:
    """Return whether the attribute ``name`` of an instance of a frozen dataclass cannot be set.

    That is every attribute; in a subclass that is not itself a dataclass, only the fields.
    """
    cls = type(instance)
    return "__dataclass_fields__" in vars(cls) or name in cls.__dataclass_fields__


class _Signature:
    """A descriptor that builds a class's signature when :func:`inspect.signature` asks for it."""

    def __init__(self, initializer: object) -> None:
        self.initializer = initializer

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        if instance is not None or cls.__init__ is not self.initializer:
            raise AttributeError("__signature__")  # Of a callable instance, or of another __init__
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
