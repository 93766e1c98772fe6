"""Former public names, which work for one release with a DeprecationWarning."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["former_field", "former_names", "warn_of_former_name"]

T = TypeVar("T")


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` (PEP 562) that resolves former names to current ones.

    ``names`` maps a former name to the current one of the same module::

        __getattr__ = former_names(__name__, {"Recipe": "TrainingRecipe"})
    """

    def getattr_of_module(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_former_name(f"{module}.{name}", f"{module}.{names[name]}")
        return getattr(sys.modules[module], names[name])

    return getattr_of_module


def former_field(former: str, current: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that keeps a dataclass's former field name, to construct and to read."""

    def decorate(cls: type[T]) -> type[T]:
        def warn() -> None:
            warn_of_former_name(f"{cls.__name__}.{former}", f"{cls.__name__}.{current}")

        def read(self: T) -> Any:
            warn()
            return getattr(self, current)

        init = cls.__init__

        @functools.wraps(init)
        def construct(self: T, *positional: Any, **keywords: Any) -> None:
            if former in keywords:
                if current in keywords:
                    raise TypeError(
                        f"{cls.__name__} got {former} and {current}, which are one setting; "
                        f"leave out {former}"
                    )
                warn()
                keywords[current] = keywords.pop(former)
            init(self, *positional, **keywords)

        for name, value in (("__init__", construct), (former, property(read))):
            setattr(cls, name, value)
        return cls

    return decorate


def warn_of_former_name(former: str, current: str) -> None:
    """Warn, at the caller's line, that a name was changed."""
    message = f"{former} is now called {current}; the former name will go in the next release"
    warn_caller(DeprecationWarning(message))
