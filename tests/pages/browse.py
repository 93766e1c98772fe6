"""Walks the site in headless Chromium: every link leads somewhere, search finds, pages fit screens.

    .clients/selenium/bin/python -m tests.pages.browse build/site build/pictures

``make docs`` makes the site and ``python -m tests.serving.clients.run selenium`` the environment;
Debian's packages chromium and chromium-driver are needed. Pictures of the main pages, at the width
of a phone and of a desk, are left in the second folder. Exits with 1 where something was wrong.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.serving.clients.page import open_browser, set_size, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTHS = {"phone": 390, "desk": 1280}
HEIGHT = 1600
PICTURED = (
    "index.html",
    "install.html",
    "embedding.html",
    "api.html",
    "notebooks/first_search.html",
)
# What is searched for, and a page that is found.
SEARCHES = {"Embedder": "api.html", "bfloat16": "numerics.html", "WordPiece": "tokenizers.html"}
LINKS = """return [...document.querySelectorAll('a[href], link[href], img[src], script[src]')]
    .map((one) => one.href || one.src)"""
# Twice, as the first picture of a size may have the layout of the one before.
DRAWN_WIDTH = """return new Promise((done) => requestAnimationFrame(() =>
    requestAnimationFrame(() => done(document.documentElement.scrollWidth))))"""
ANCHORS = "return [...document.querySelectorAll('[id]')].map((one) => one.id)"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and prints nothing."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main(site: Path, pictures: Path) -> int:
    """Walk the site; print what is wrong as it is found, and how much was seen."""
    pictures.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    with tempfile.TemporaryDirectory() as folder:
        driver = open_browser(folder)
        try:
            wrong = 0
            for fault in walk(driver, url, site, pictures):
                wrong += 1
                print(fault, flush=True)
        finally:
            driver.quit()
            server.shutdown()
    print(f"{wrong} faults")
    return 1 if wrong else 0


def walk(driver: Any, url: str, site: Path, pictures: Path) -> Iterator[str]:
    """Yield what is wrong with the site's pages."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    links, anchors = {}, {}
    for page in pages:
        driver.get(url + page)
        wait(driver, "document.readyState === 'complete'")
        links[page] = set(driver.execute_script(LINKS))
        anchors[page] = set(driver.execute_script(ANCHORS))
        for name, width in WIDTHS.items():
            set_size(driver, width, HEIGHT)
            wait(driver, f"window.innerWidth === {width}")
            wider = driver.execute_script(DRAWN_WIDTH) - width
            if wider > 0:
                yield f"{page}: {wider} pixels wider than a {name} of {width}"
            if page in PICTURED:
                stem = page.replace("/", "-").removesuffix(".html")
                driver.save_screenshot(str(pictures / f"{name}-{stem}.png"))
        for entry in driver.get_log("browser"):
            yield f"{page}: {entry['message']}"
    print(f"{len(pages)} pages, {sum(map(len, links.values()))} links")
    for page, targets in links.items():
        for target in sorted(targets):
            if target.startswith(url):
                yield from followed(page, target.removeprefix(url), site, anchors)
    for word, expected in SEARCHES.items():
        found = search(driver, url, word)
        print(f"search for {word}: {len(found)} results, first {found[0] if found else None}")
        if not any(expected in place for place in found):
            yield f"a search for {word} does not find {expected}"


def followed(page: str, link: str, site: Path, anchors: dict[str, set[str]]) -> Iterator[str]:
    """Yield what is wrong with a link within the site."""
    place, _, anchor = link.partition("#")
    place = unquote(place.partition("?")[0]) or "index.html"
    if not (site / place).is_file():
        yield f"{page}: nothing at {place}"
    elif anchor and place in anchors and unquote(anchor) not in anchors[place]:
        yield f"{page}: {place} has no {anchor}"


def search(driver: Any, url: str, word: str) -> list[str]:
    """Return the addresses that the site's search finds; without an index, none."""
    driver.get(f"{url}index.html?q={word}")
    results = "document.querySelectorAll('.md-search-result__item a')"
    ended = "/result|No match/.test(document.querySelector('.md-search-result__meta').textContent)"
    with contextlib.suppress(importlib.import_module("selenium.common").TimeoutException):
        wait(driver, f"{results}.length || {ended}")
    found: list[str] = driver.execute_script(f"return [...{results}].map((one) => one.href)")
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
