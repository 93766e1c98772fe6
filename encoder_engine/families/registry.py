"""The registry of families, by ``model_type``."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import UnknownModelTypeError
from encoder_engine.families import data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.family import Family

__all__ = ["all_families", "find_family", "names_code_of", "recognise_family"]

# By model_type in config.json, the families that share it with the family of that name. Only these
# are imported to recognise a model: importing all took 23 to 33 ms on an AMD EPYC with AVX2.
WRITTEN_AS = {
    "bert": ("jina_bert_v2", "jina_bert_v2_qk"),
    "gte": ("gte_v1",),
    "nomic_bert": ("nomic_bert_v1",),
    "xlm-roberta": ("xlm_roberta_flash", "xlm_roberta_rotary"),
}


@cache
def all_families() -> dict[str, Family]:
    """Return all families by ``model_type``: one per file in ``families/data``."""
    families = [_read(module) for module in _modules()]
    return {family.model_type: family for family in sorted(families, key=lambda f: f.model_type)}


@cache
def _modules() -> frozenset[str]:
    # pkgutil, which no other code imports before a first vector, only where there are no files.
    folders = [path for path in map(Path, data.__path__) if path.is_dir()]
    names = {inspect.getmodulename(file.name) for folder in folders for file in folder.iterdir()}
    found = {name for name in names if name and name.isidentifier() and name != "__init__"}
    if not found:
        import pkgutil

        found = {module.name for module in pkgutil.iter_modules(data.__path__)}
    return frozenset(found)


def _read(module: str) -> Family:
    family: Family = importlib.import_module(f"{data.__name__}.{module}").FAMILY
    return family


def recognise_family(config: Mapping[str, Any]) -> Family:
    """Return the family of a config.json; raise :class:`UnknownModelTypeError` if there is none.

    Several families may be written with one ``model_type``. Of those whose ``marks`` (keys and
    values of config.json) all match, the one with the most is chosen, then the one whose model code
    ``auto_map`` names.
    """
    model_type = config.get("model_type")
    family = find_family(model_type)
    written_so = [_read(module) for module in WRITTEN_AS.get(family.model_type, ())]
    found = [
        family
        for family in (family, *written_so)
        if family.config_model_type == model_type
        and all(config.get(key) == value for key, value in family.marks.items())
        and (names_code_of(config, family) or not family.recognised_by_code)
    ]
    # Of families with the same marks, the model's own code names one.
    return max(
        found, key=lambda family: (len(family.marks), names_code_of(config, family)), default=family
    )


def names_code_of(config: Mapping[str, Any], family: Family) -> bool:
    """Return whether ``auto_map`` of config.json names only model code known as the family's."""
    auto_map = config.get("auto_map")
    named = auto_map.values() if isinstance(auto_map, dict) else [auto_map]
    return bool(family.code) and all(
        isinstance(name, str) and name.startswith(family.code) for name in named
    )


def find_family(model_type: object) -> Family:
    """Return the family of a ``model_type``, or raise :class:`UnknownModelTypeError`."""
    if isinstance(model_type, str):
        module = model_type.replace("-", "_")
        if module in _modules() and (family := _read(module)).model_type == model_type:
            return family
    raise UnknownModelTypeError(
        f"model_type {model_type!r} is not supported; supported are {', '.join(all_families())}"
    )
