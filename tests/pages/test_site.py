"""The site in a browser: no dead link, search finds, nothing is wider than a phone."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.serving.clients.run import clients_folder

if TYPE_CHECKING:
    from pathlib import Path

SITE = ROOT / "build" / "site"


@pytest.mark.exhaustive
def test_the_site_in_a_browser(tmp_path: Path) -> None:
    python = clients_folder() / "selenium" / "bin" / "python"
    if not python.is_file():
        pytest.skip("python -m tests.serving.clients.run selenium makes its environment")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    if not SITE.is_dir():
        pytest.skip("make docs makes the site")
    for damaged in (False, True):
        site = shutil.copytree(SITE, tmp_path / f"site-{damaged}")
        if damaged:
            page = site / "index.html"
            text = page.read_text("utf-8").replace('href="install.html', 'href="instal.html', 1)
            page.write_text(
                text.replace(
                    "</article>",
                    '<a href="api.html#nothing">x</a><div style="width:3000px">w</div></article>',
                ),
                "utf-8",
            )
            index = site / "search" / "search_index.json"
            words = json.loads(index.read_text("utf-8"))
            words["docs"] = [doc for doc in words["docs"] if not doc["location"].startswith("api")]
            index.write_text(json.dumps(words), "utf-8")
        ran = subprocess.run(
            [python, "-m", "tests.pages.browse", site, tmp_path / "pictures"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=600,
            check=False,
        )
        assert ran.returncode == damaged, ran.stdout + ran.stderr
        assert ("nothing at instal.html" in ran.stdout) == damaged
        assert ("api.html has no nothing" in ran.stdout) == damaged
        assert ("wider than a phone" in ran.stdout) == damaged
        assert ("search for Embedder does not find api.html" in ran.stdout) == damaged
