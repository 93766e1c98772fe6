"""The registry of families, by ``model_type``."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import UnknownModelTypeError
from encoder_engine.families import data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.family import Family

__all__ = ["all_families", "find_family", "recognise_family"]


@cache
def all_families() -> dict[str, Family]:
    """Return all families by ``model_type``: one per file in ``families/data``."""
    found = {}
    for module in pkgutil.iter_modules(data.__path__):
        family: Family = importlib.import_module(f"{data.__name__}.{module.name}").FAMILY
        found[family.model_type] = family
    return dict(sorted(found.items()))


def recognise_family(config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration; raises :class:`UnknownModelTypeError`."""
    model_type = config.get("model_type")
    found = [
        family
        for family in all_families().values()
        if family.config_model_type == model_type
        and all(config.get(key) == value for key, value in family.marks.items())
    ]
    if not found:
        return find_family(model_type)
    # Of families with the same marks, the model's own code names one.
    own = config.get("auto_map")
    names = tuple(own.values()) if isinstance(own, dict) else (own,)
    return max(found, key=lambda family: (len(family.marks), _is_code_of(family, names)))


def _is_code_of(family: Family, names: tuple[object, ...]) -> bool:
    repositories = tuple(code for code in family.code if code.endswith("--"))
    return any(isinstance(name, str) and name.startswith(repositories) for name in names)


def find_family(model_type: object) -> Family:
    """Return a family by name; raises :class:`UnknownModelTypeError` with the known ones."""
    known = all_families()
    if not isinstance(model_type, str) or model_type not in known:
        raise UnknownModelTypeError(
            f"model_type {model_type!r} is not supported; supported are {', '.join(known)}"
        )
    return known[model_type]
