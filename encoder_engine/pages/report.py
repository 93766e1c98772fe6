"""A report as a single HTML file of tables, bars and drawings, without scripts and links."""

from __future__ import annotations

import re
from dataclasses import field
from html import escape
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bars", "Drawing", "Part", "Table", "report_page"]

_STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; margin: 24px auto; max-width: 960px;
 padding: 0 16px; overflow-wrap: anywhere; }
h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 28px; }
.table { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: 3px 12px 3px 0; text-align: right; vertical-align: top;
 overflow-wrap: normal; white-space: nowrap; }
th { border-bottom: 1px solid #999; white-space: normal; vertical-align: bottom; }
th.text, td.text { text-align: left; white-space: normal; overflow-wrap: break-word; }
td.text { min-width: 3em; }
tr:nth-child(even) td { background: #f5f7fa; }
svg { display: block; width: 100%; height: auto; font: 12px sans-serif; }
"""
_WORD = re.compile(r"[^\W\d_]{3}")
# Widths and height in SVG units; the drawing is 800 wide.
_LABEL, _BAR, _ROW = 180, 540, 24


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled table; cells are strings, and the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A titled bar chart with a bar per label, from 0; bars of negative values go left."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    note: str = ""
    # The format of the number at a bar.
    form: str = field(default=".3f")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A titled SVG element, which is not escaped and must come from this package."""

    title: str
    svg: str
    note: str = ""


Part = Table | Bars | Drawing


def report_page(title: str, summary: str, parts: Sequence[Part]) -> str:
    """Return a report as HTML; texts are escaped, so that markup in them is shown literally."""
    body = "\n".join(_part(part) for part in parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"\n'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(summary)}</p>\n{body}\n</body>\n</html>\n"
    )


def _part(part: Part) -> str:
    if isinstance(part, Drawing):
        return f"{_heading(part)}\n{part.svg}"
    return _table(part) if isinstance(part, Table) else _bars(part)


def _heading(part: Part) -> str:
    note = f"\n<p>{escape(part.note)}</p>" if part.note else ""
    return f"<h2>{escape(part.title)}</h2>{note}"


def _table(part: Table) -> str:
    texts = [
        number == 0 or _is_text(column)
        for number, column in enumerate(zip(*part.rows, strict=True))
    ]
    texts += [False] * (len(part.columns) - len(texts))
    kinds = [' class="text"' if text else "" for text in texts]

    def row_of(cells: Sequence[str], tag: str) -> str:
        written = (
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)
        )
        return f"<tr>{''.join(written)}</tr>"

    rows = "\n".join(row_of(row, "td") for row in part.rows)
    head = row_of(part.columns, "th")
    return f'{_heading(part)}\n<div class="table"><table>\n{head}\n{rows}\n</table></div>'


def _is_text(cells: Sequence[str]) -> bool:
    """Return whether a table's column contains words; such a column is aligned left and wraps."""
    return any(_WORD.search(cell) for cell in cells)


def _bars(part: Bars) -> str:
    low, high = min(0.0, *part.values, 0.0), max(0.0, *part.values, 0.0)
    scale = _BAR / (high - low) if high > low else 0.0
    zero = _LABEL - low * scale
    drawn = []
    for number, (label, value) in enumerate(zip(part.labels, part.values, strict=True)):
        top = number * _ROW
        left, width = zero + min(0.0, value) * scale, abs(value) * scale
        drawn.append(
            f'<text x="{_LABEL - 8}" y="{top + 16}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="{_ROW - 6}" '
            'fill="#1a56b0"/>'
            f'<text x="{left + width + 6:.1f}" y="{top + 16}">{value:{part.form}}</text>'
        )
    height = _ROW * len(part.values)
    return (
        f'{_heading(part)}\n<svg viewBox="0 0 800 {height}" role="img" '
        f'aria-label="{escape(part.title)}">\n' + "\n".join(drawn) + "\n</svg>"
    )
