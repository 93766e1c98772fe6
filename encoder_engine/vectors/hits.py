"""A search result: a stored row, its id and its score."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from encoder_engine.inputs.identifiers import Identifier

__all__ = ["Hit", "check_num_hits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A search result: a row's number in the store, from 0, its score and, if any, its id.

    kept: the row's values in the kept columns of the store, by name.
    """

    row: int
    identifier: Identifier | None
    score: float
    kept: dict[str, Any] = field(default_factory=dict)


def check_num_hits(value: object, name: str = "num_hits") -> None:
    """Raise :class:`InputError` unless a number of hits is a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
