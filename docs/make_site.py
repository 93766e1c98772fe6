"""Gathers the pages of the site in build/site-pages, from where mkdocs makes build/site.

The pages are README as the front page, the other documents, and the notebooks. Links between files
of the checkout become links between pages.
"""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "site-pages"
# Documents outside docs/, by their names on the site.
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/LOG.md": "LOG.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)#\s]*)((?:#[^)\s]*)?)\)")


def main() -> None:
    """Write all pages anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    pages = {path: path.name for path in (ROOT / "docs").glob("*.md")}
    pages |= {ROOT / source: name for source, name in OTHERS.items()}
    for path, name in pages.items():
        text = path.read_text("utf-8")
        link = functools.partial(linked, page=path, pages=pages)
        (TARGET / name).write_text(_LINK.sub(link, text), "utf-8")
    shutil.copytree(ROOT / "examples" / "notebooks", TARGET / "notebooks")
    for path in (ROOT / "docs").glob("*.svg"):
        shutil.copy(path, TARGET)


def linked(match: re.Match[str], page: Path, pages: dict[Path, str]) -> str:
    """Return a link as it is on the site; of what is no page, its words and its place."""
    words, target, heading = match.groups()
    if not target:
        return match.group()
    path = (page.parent / target).resolve()
    if path in pages:
        return f"[{words}]({pages[path]}{heading})"
    if path.suffix in (".svg", ".png"):
        return f"[{words}]({path.name})"
    return f"{words} (`{path.relative_to(ROOT)}`)"


if __name__ == "__main__":
    main()
