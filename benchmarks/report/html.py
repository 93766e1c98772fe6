"""Turns the page's Markdown into one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STYLE = """
:root { color-scheme: light dark; --faint: #8885; --ours: #1a56b0; --loss: #c8500e; }
@media (prefers-color-scheme: dark) { :root { --ours: #6ea3ff; --loss: #ff9052; } }
body { margin: 0 auto; max-width: 1200px; padding: 1rem 1.25rem 4rem;
  font: 16px/1.5 system-ui, sans-serif; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--faint); }
nav { columns: 14rem; } nav a { display: block; } a { color: var(--ours); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .82rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--faint); font-variant-numeric: tabular-nums; }
td b { color: var(--loss); } summary { cursor: pointer; font-weight: 600; }
td i { display: block; height: .5em; min-width: 1px; background: var(--ours); }
"""
# A bar under a ratio: so many em for each factor of 1, and at most so many.
_BAR_EM, _MOST_EM = 1.0, 12.0


def write_html(markdown: str) -> str:
    """Write a page of headings, paragraphs, lists and tables; what ``###`` begins can be folded."""
    lines = markdown.splitlines()
    title = lines[0].removeprefix("# ")
    sections = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in sections)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(_body(lines[1:]))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n'
        f"<h1>{escape(title)}</h1><nav>{links}</nav>\n{body}\n</body></html>\n"
    )


def _body(lines: Iterable[str]) -> Iterator[str]:
    """Yield the elements; only the figures of every case are folded until someone opens them."""
    end, opened = "", " open"
    for kind, group in groupby(lines, _kind):
        same = list(group)
        if kind in ("#", "##"):
            (heading,) = same
            title = heading.lstrip("# ")
            yield end
            end = ""
            if kind == "##":
                yield f"<details{opened}><summary>{_inline(title)}</summary>"
                end = "</details>"
            else:
                opened = "" if title == "Every case" else " open"
                yield f'<h2 id="{_anchor(title)}">{escape(title)}</h2>'
        elif kind == "|":
            yield from _table(same)
        elif kind == "-":
            items = "".join(f"<li>{_inline(line[2:])}</li>" for line in same)
            yield f"<ul>{items}</ul>"
        elif kind == "p":
            yield from (f"<p>{_inline(line)}</p>" for line in same)
    yield end


def _kind(line: str) -> str:
    if line.startswith("##"):
        return "##" if line.startswith("### ") else "#"
    return "" if not line else line[0] if line.startswith(("| ", "- ")) else "p"


def _table(lines: list[str]) -> Iterator[str]:
    header, _, *rows = ([cell.strip() for cell in x.strip("|").split(" | ")] for x in lines)
    names = "".join(f"<th>{_inline(name)}</th>" for name in header)
    yield f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>'
    for row in rows:
        cells = "".join(
            f"<td>{_inline(x)}{_bar(x, n)}</td>" for x, n in zip(row, header, strict=True)
        )
        yield f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"


def _bar(cell: str, name: str) -> str:
    ratio = re.match(r"\**([\d.]+)x", cell) if name == "times" else None
    if ratio is None:
        return ""
    return f'<i style="width: {min(_MOST_EM, _BAR_EM * float(ratio[1])):.2f}em"></i>'


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
