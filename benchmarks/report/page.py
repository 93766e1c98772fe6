"""A page as values, rendered later as Markdown or HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

Mark = Literal["loss", "win", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph; code stands between backticks."""

    words: str


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text cells; ``marks`` highlights rows by their index."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    marks: Mapping[int, Mark] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure, drawn on demand, and the same numbers as a table.

    ``name``: the name of its file, unique on the page. ``main``: Markdown writes it as a file;
    other figures become tables.
    """

    name: str
    caption: str
    draw: Callable[[], Figure]
    table: Table
    main: bool = False


@dataclass(frozen=True, kw_only=True)
class Fold:
    """A collapsed part of the page."""

    title: str
    blocks: Sequence[Block]


Block = Text | Items | Table | Picture | Fold


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section; ``reading`` states its result in one sentence."""

    title: str
    reading: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole page."""

    title: str
    reading: str
    sections: Sequence[Section]
