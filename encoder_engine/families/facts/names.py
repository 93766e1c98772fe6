"""Reversible renames between the engine's parameter names and a checkpoint's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Origin", "Rename", "modern_name", "origins"]


class Origin(NamedTuple):
    """The checkpoint tensors that one of our parameters is stacked from."""

    names: tuple[str, ...]
    halves_swapped: bool = False


@dataclass(frozen=True)
class Rename:
    """One module of ours and what a checkpoint calls it; ``{block}`` stands for a block's index.

    Where ``theirs`` names several modules, ours is theirs stacked along the first dimension.
    ``halves_swapped``: what is then the first half comes second in ours.
    """

    ours: str
    theirs: str | tuple[str, ...]
    halves_swapped: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches our parameter names below this module."""
        escaped = re.escape(self.ours).replace(r"\{block\}", r"(?P<block>\d+)")
        return re.compile(rf"{escaped}\.(?P<part>weight|weight_scale|bias)")

    def apply(self, name: str) -> Origin | None:
        """Say where one of our parameters is from, or None if it is not below."""
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        parts = match.groupdict()
        theirs = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        block = parts.get("block", "")
        names = tuple(f"{other.replace('{block}', block)}.{parts['part']}" for other in theirs)
        return Origin(names, self.halves_swapped)


def origins(renames: Iterable[Rename], parameters: Iterable[str]) -> dict[str, Origin]:
    """Map each of our parameter names to the one or more checkpoint tensors it is made of."""
    mapped: dict[str, Origin] = {}
    renames = tuple(renames)
    for name in parameters:
        found = [origin for rename in renames if (origin := rename.apply(name)) is not None]
        assert len(found) == 1, f"{name} is named by {len(found)} renames, not one"
        mapped[name] = found[0]
    return mapped


def modern_name(name: str) -> str:
    """Translate the names of checkpoints converted from TensorFlow: gamma and beta of a norm."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
