"""A page as values, before it is Markdown or HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

Mark = Literal["loss", "win", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph; `code` stands between backticks."""

    words: str


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as text; ``marks`` are rows that stand out, by their place."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Mapping[int, Mark] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure, drawn when it is asked for, and the same in numbers.

    ``name`` is that of its file, and unlike any other's of the page. ``main``: it is worth a file;
    Markdown shows others in numbers alone.
    """

    name: str
    caption: str
    draw: Callable[[], Figure]
    table: Table
    main: bool = False


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What only some want to see."""

    title: str
    blocks: Sequence[Block]


Block = Text | Items | Table | Picture | Fold


@dataclass(frozen=True, kw_only=True)
class Section:
    """``reading`` says in one sentence what the rest shows."""

    title: str
    reading: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """All of it."""

    title: str
    reading: str
    sections: Sequence[Section]
