"""Public names of a package that are imported at their first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` that know names before they are imported.

    ``modules`` maps a name to the module that defines it, by its name within the package or by its
    full name; ``""``: the name is a module itself::

        __getattr__, __dir__ = lazy_names(__name__, {"Embedder": "embedder"})

    A name whose module imports PyTorch raises :class:`MissingDependencyError` without it.
    """

    def getattr_of_package(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not modules[name]:
            return importlib.import_module(f"{package}.{name}")
        is_absolute = modules[name].startswith("encoder_engine.")
        module = modules[name] if is_absolute else f"{package}.{modules[name]}"
        try:
            value = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch":
                raise
            raise MissingDependencyError(
                f"{package}.{name}", library="torch", extra="torch"
            ) from None
        setattr(sys.modules[package], name, value)
        return value

    def dir_of_package() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return getattr_of_package, dir_of_package
