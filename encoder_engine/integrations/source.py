"""Whether classes still compute by the code that PyTorch and transformers wrote."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

from encoder_engine.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_classes"]

# By these a module is called.
CALLED = ("__call__", "_call_impl", "_wrapped_call_impl", "forward")


def check_classes(kinds: Iterable[type]) -> None:
    """Raise :class:`UnsupportedFeatureError` for a class whose methods somebody has replaced.

    A method counts as the class's own where its code is in a file of the library that the class is
    of. Of classes all modules share only those methods are looked at that call them.
    """
    for kind in kinds:
        library = kind.__module__.partition(".")[0]
        if library not in ("torch", "transformers"):
            continue
        is_models = ".models." in kind.__module__
        for name, held in list(vars(kind).items()):
            if not (is_models or name in CALLED):
                continue
            method = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
            if name == "forward" and not isinstance(method, FunctionType):
                _refuse(kind, name, type(method).__name__)
            if isinstance(method, FunctionType) and name != "__init__":
                file = method.__code__.co_filename
                if not file.startswith(_folders()):
                    _refuse(kind, name, file)


def _refuse(kind: type, name: str, origin: str) -> None:
    raise UnsupportedFeatureError(
        f"{kind.__name__}.{name} is not {kind.__module__.partition('.')[0]}'s own but from "
        f"{origin}, which is not called within an accelerated model; undo the patch, or call "
        "restore(model)"
    )


@cache
def _folders() -> tuple[str, ...]:
    found = []
    for library in ("torch", "transformers"):
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parent) + os.sep)
    # Code made when a library is imported, as a dataclass's, is in no file.
    return (*found, "<")
