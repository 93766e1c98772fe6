"""Whether classes, functions and attention are still the code that PyTorch and transformers wrote.

What is told apart is where code is from. A function of a library that stands in the place of
another of its functions is not noticed.
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

# By these a module is called.
CALLED = ("__call__", "_call_impl", "_wrapped_call_impl", "forward")
# Names of attention that transformers has itself; any other is registered by somebody.
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


def modules_of(kinds: Iterable[type]) -> list[ModuleType]:
    """Return transformers' modules that classes of models are defined in."""
    names = dict.fromkeys(kind.__module__ for kind in kinds)
    return [sys.modules[n] for n in names if n.startswith("transformers.models.")]


def check_functions(modules: Iterable[ModuleType]) -> None:
    """Raise :class:`UnsupportedFeatureError` for a module in which somebody replaced a function."""
    for module in modules:
        for name, held in list(vars(module).items()):
            if isinstance(held, FunctionType):
                is_pythons = (held.__module__ or "").partition(".")[0] in sys.stdlib_module_names
                if not (is_pythons or held.__code__.co_filename.startswith(_folders())):
                    _refuse(module, name, held.__code__.co_filename)


def check_attention(config: Any) -> None:
    """Raise :class:`UnsupportedFeatureError` where a model attends by a function of somebody's.

    So it does by a name that somebody registered, and by a function that somebody put in the place
    of transformers' own for attention or its mask.
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
        held = registered.get(chosen)
        if held is not None and not _is_librarys(held):
            raise UnsupportedFeatureError(
                f"{type(registered).__name__} holds {_told(held)} for {chosen!r} in the place of "
                "transformers' own function, which is not called within an accelerated model; put "
                "that back, or call restore(model)"
            )


def _is_librarys(held: object) -> bool:
    if not isinstance(held, FunctionType):
        return False
    ours = (held.__module__ or "").partition(".")[0] == OURS
    return ours or held.__code__.co_filename.startswith(_folders())


def _told(held: object) -> str:
    if isinstance(held, FunctionType):
        return f"{held.__name__} from {held.__code__.co_filename}"
    return type(held).__name__


def _refuse(place: type | ModuleType, name: str, origin: str) -> None:
    module = place.__module__ if isinstance(place, type) else place.__name__
    raise UnsupportedFeatureError(
        f"{place.__name__}.{name} is not {module.partition('.')[0]}'s own but from {origin}, which "
        "is not called within an accelerated model; undo the patch, or call restore(model)"
    )


@cache
def _folders() -> tuple[str, ...]:
    found = []
    for library in ("torch", "transformers"):
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parent) + os.sep)
    return tuple(found)
