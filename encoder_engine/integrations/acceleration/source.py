"""Checks that classes, functions and attention are still PyTorch's and transformers' own code.

Code is recognised by the file that defines it. A function that another function of the same library
replaces is not noticed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_attention", "check_classes", "check_functions", "modules_of"]

# The methods by which a module is called.
CALLED = ("__call__", "_call_impl", "_wrapped_call_impl", "forward")
# transformers' own names of attention; any other was registered by other code.
ATTENTION = frozenset(
    [
        "eager",
        "encoder_engine",
        "flash_attention_2",
        "flash_attention_3",
        "flash_attention_4",
        "flex_attention",
        "sdpa",
    ]
)
OURS = __name__.partition(".")[0]


def check_classes(kinds: Iterable[type]) -> None:
    """Raise :class:`UnsupportedFeatureError` if other code has replaced a method of these classes.

    A method counts as the class's own if its code is in a file of the class's library. Of base
    classes that all modules share, only the methods that call a module are checked.
    """
    for kind in kinds:
        library = kind.__module__.partition(".")[0]
        if library not in ("torch", "transformers"):
            continue
        is_models = ".models." in kind.__module__
        for name, function in list(vars(kind).items()):
            if not (is_models or name in CALLED):
                continue
            method = (
                function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
            )
            if name == "forward" and not isinstance(method, FunctionType):
                _refuse(kind, name, type(method).__name__)
            if isinstance(method, FunctionType) and name != "__init__":
                file = method.__code__.co_filename
                if not file.startswith(_folders()):
                    _refuse(kind, name, file)


def modules_of(kinds: Iterable[type]) -> list[ModuleType]:
    """Return the modules of transformers that define these classes."""
    names = dict.fromkeys(kind.__module__ for kind in kinds)
    return [sys.modules[n] for n in names if n.startswith("transformers.models.")]


def check_functions(modules: Iterable[ModuleType]) -> None:
    """Raise :class:`UnsupportedFeatureError` if other code has replaced a function in a module."""
    for module in modules:
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType):
                is_pythons = (function.__module__ or "").partition(".")[
                    0
                ] in sys.stdlib_module_names
                if not (is_pythons or function.__code__.co_filename.startswith(_folders())):
                    _refuse(module, name, function.__code__.co_filename)


def check_attention(config: Any) -> None:
    """Raise :class:`UnsupportedFeatureError` if a model's attention is not transformers' own.

    It checks the name of the implementation, and what is registered by this name.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    chosen = getattr(config, "_attn_implementation", None)
    if chosen is None:
        return
    if chosen not in ATTENTION:
        raise UnsupportedFeatureError(
            f"the model's attention is {chosen!r}, which is not called within an accelerated "
            "model; call model.set_attn_implementation('sdpa'), or restore(model)"
        )
    for registered in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        function = registered.get(chosen)
        if function is not None and not _is_librarys(function):
            raise UnsupportedFeatureError(
                f"{type(registered).__name__} has {_described(function)} for {chosen!r} instead of "
                "transformers' own function; an accelerated model does not call it. Put "
                "transformers' function back, or call restore(model)"
            )


def _is_librarys(function: object) -> bool:
    if not isinstance(function, FunctionType):
        return False
    ours = (function.__module__ or "").partition(".")[0] == OURS
    return ours or function.__code__.co_filename.startswith(_folders())


def _described(function: object) -> str:
    if isinstance(function, FunctionType):
        return f"{function.__name__} from {function.__code__.co_filename}"
    return type(function).__name__


def _refuse(place: type | ModuleType, name: str, origin: str) -> None:
    module = place.__module__ if isinstance(place, type) else place.__name__
    raise UnsupportedFeatureError(
        f"{place.__name__}.{name} is not {module.partition('.')[0]}'s own but from {origin}; an "
        "accelerated model does not call it: undo the patch, or call restore(model)"
    )


@cache
def _folders() -> tuple[str, ...]:
    found = []
    for library in ("torch", "transformers"):
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parent) + os.sep)
    return tuple(found)
