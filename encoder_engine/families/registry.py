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

__all__ = ["all_families", "find_family", "names_code_of", "recognise_family"]


@cache
def all_families() -> dict[str, Family]:
    """Return all families by ``model_type``: one per file in ``families/data``."""
    found = {}
    for module in pkgutil.iter_modules(data.__path__):
        family: Family = importlib.import_module(f"{data.__name__}.{module.name}").FAMILY
        found[family.model_type] = family
    return dict(sorted(found.items()))


def recognise_family(config: Mapping[str, Any]) -> Family:
    """Return the family of a configuration; raises :class:`UnknownModelTypeError`.

    Of several families with the ``model_type``, the one with the most marks is chosen among those
    whose marks are all present.
    """
    model_type = config.get("model_type")
    found = [
        family
        for family in all_families().values()
        if family.config_model_type == model_type
        and all(config.get(key) == value for key, value in family.marks.items())
        and (names_code_of(config, family) or not family.recognised_by_code)
    ]
    if not found:
        return find_family(model_type)
    # Of families with the same marks, the model's own code names one.
    return max(found, key=lambda family: (len(family.marks), names_code_of(config, family)))


def names_code_of(config: Mapping[str, Any], family: Family) -> bool:
    """Return whether ``auto_map`` names code that computes the family, and no other."""
    auto_map = config.get("auto_map")
    named = auto_map.values() if isinstance(auto_map, dict) else [auto_map]
    return bool(family.code) and all(
        isinstance(name, str) and name.startswith(family.code) for name in named
    )


def find_family(model_type: object) -> Family:
    """Return a family by name; raises :class:`UnknownModelTypeError` with the known ones."""
    known = all_families()
    if not isinstance(model_type, str) or model_type not in known:
        raise UnknownModelTypeError(
            f"model_type {model_type!r} is not supported; supported are {', '.join(known)}"
        )
    return known[model_type]
