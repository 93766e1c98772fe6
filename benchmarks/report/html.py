"""Writes a page as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from benchmarks.report.page import Fold, Items, Picture, Table, Text
from benchmarks.report.pictures import COLOURS, inline_svg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report.page import Block, Page

# The pictures' colours by name, for a light and a dark screen; PICTURES names the light ones.
DARK = {
    "ink": "#e6e6ea",
    "faint": "#4a4a55",
    "ours": "#6ea3ff",
    "peer": "#7d8494",
    "loss": "#ff9052",
    "line": "#c9c9d2",
    "one": "#58b98a",
    "two": "#d9b44a",
    "three": "#c58be0",
    "four": "#66c6d6",
    "five": "#e07f9d",
}
STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --soft: #f4f4f7; LIGHT }
@media (prefers-color-scheme: dark) { :root { --paper: #16161a; --soft: #222229; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--faint); }
.reading { font-size: 1.1rem; } nav { columns: 14rem; margin: 1.5rem 0; } nav a { display: block; }
a { color: var(--ours); } code { background: var(--soft); padding: 0 .2em; }
figure { margin: 1.5rem 0; max-width: 760px; } figure svg { width: 100%; height: auto; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .82rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--faint); font-variant-numeric: tabular-nums; }
td.whole { white-space: nowrap; } td.long { min-width: 11em; }
tr.loss td:first-child { color: var(--loss); font-weight: 700; }
tr.win td:first-child { color: var(--ours); font-weight: 700; }
details { margin: .5rem 0; } summary { cursor: pointer; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; }
"""
# So many characters of a cell are not broken; a cell of more than so many is given room.
_WHOLE = 14
_LONG = 40
KEY = {"ours": "encoder-engine", "loss": "encoder-engine, where it loses", "peer": "other tools"}


def write_html(page: Page) -> str:
    """Write the page."""
    style = STYLE.replace("LIGHT", _variables(COLOURS)).replace("DARK", _variables(DARK))
    key = "".join(
        f'<span><i style="background:var(--{name})"></i>{escape(words)}</span>'
        for name, words in KEY.items()
    )
    links = "".join(
        f'<a href="#{_anchor(section.title)}">{escape(section.title)}</a>'
        for section in page.sections
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title>",
        f"<style>{style}</style></head><body>",
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="reading">{_inline(page.reading)}</p>',
        f'<nav>{links}</nav><p class="key">{key}</p>',
    ]
    for section in page.sections:
        lines.append(f'<h2 id="{_anchor(section.title)}">{escape(section.title)}</h2>')
        lines.append(f'<p class="reading">{_inline(section.reading)}</p>')
        for block in section.blocks:
            lines += _block(block)
    return "\n".join([*lines, "</body></html>", ""])


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _inline(words: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield f"<p>{_inline(block.words)}</p>"
    elif isinstance(block, Items):
        yield "<ul>"
        yield from (f"<li>{_inline(item)}</li>" for item in block.items)
        yield "</ul>"
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Picture):
        yield f"<figure><figcaption>{escape(block.caption)}</figcaption>"
        yield inline_svg(block.draw(), block.name, block.caption)
        yield "<details><summary>in numbers</summary>"
        yield from _table(block.table)
        yield "</details></figure>"
    else:
        yield from _fold(block)


def _fold(fold: Fold) -> Iterator[str]:
    yield f"<details><summary>{_inline(fold.title)}</summary>"
    for block in fold.blocks:
        yield from _block(block)
    yield "</details>"


def _cell(cell: str) -> str:
    """Keep a word or a date on one line, and a sentence from becoming a column of single words."""
    if len(cell) <= _WHOLE:
        return f'<td class="whole">{_inline(cell)}</td>'
    if len(cell) > _LONG:
        return f'<td class="long">{_inline(cell)}</td>'
    return f"<td>{_inline(cell)}</td>"


def _table(table: Table) -> Iterator[str]:
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(name)}</th>" for name in table.header)
    yield "</tr></thead><tbody>"
    for place, row in enumerate(table.rows):
        mark = table.marks.get(place)
        cells = "".join(_cell(cell) for cell in row)
        name = f' class="{mark}"' if mark else ""
        yield f"<tr{name}>{cells}</tr>"
    yield "</tbody></table></div>"
