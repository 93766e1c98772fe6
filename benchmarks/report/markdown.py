"""Writes a page as Markdown: pictures as tables, and the main ones also as files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report.page import Fold, Items, Picture, Table, Text
from benchmarks.report.pictures import standalone_svg
from benchmarks.report.tables import markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.report.page import Block, Page


def write_markdown(page: Page, pictures: Path | None = None) -> str:
    """Write the page; the main pictures go into the folder ``pictures`` beside it, and no others.

    Those of an earlier page that this one lacks are removed.
    """
    if pictures is not None:
        for old in pictures.glob("*.svg"):
            old.unlink()
    lines = [f"# {page.title}", "", page.reading, ""]
    for section in page.sections:
        lines += [f"## {section.title}", "", section.reading, ""]
        for block in section.blocks:
            lines += [*_block(block, pictures), ""]
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block, pictures: Path | None) -> Iterator[str]:
    if isinstance(block, Text):
        yield block.words
    elif isinstance(block, Items):
        yield from (f"- {item}" for item in block.items)
    elif isinstance(block, Table):
        yield from markdown_table(block.header, block.rows)
    elif isinstance(block, Picture):
        yield from _picture(block, pictures)
    else:
        yield from _fold(block, pictures)


def _picture(picture: Picture, pictures: Path | None) -> Iterator[str]:
    if pictures is not None and picture.main:
        pictures.mkdir(parents=True, exist_ok=True)
        path = pictures / f"{picture.name}.svg"
        path.write_text(standalone_svg(picture.draw(), picture.name), "utf-8")
        yield from (f"![{picture.caption}]({pictures.name}/{path.name})", "")
    yield from (f"**{picture.caption}**", "")
    yield from markdown_table(picture.table.header, picture.table.rows)


def _fold(fold: Fold, pictures: Path | None) -> Iterator[str]:
    yield f"### {fold.title}"
    for block in fold.blocks:
        yield ""
        yield from _block(block, pictures)
