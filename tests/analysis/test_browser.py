"""Every page in a headless browser: no request, no script of a text, no text upon another."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.analysis.test_accent import models
from tests.analysis.test_prune import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.analysis.conftest import Run

__all__ = ["models", "tuned"]

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MARKUP = "<script>document.title='run'</script><img src='http://a.example/x'>"
# The boxes of all visible lines of text, one text node against another. Two pixels are the
# rounding of both.
OVERLAPS = """
const boxes = [], found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const node = walk.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest("script, style, title, noscript, [hidden]")) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) boxes.push([node, box]);
}
for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
  const [one, a] = boxes[i], [other, b] = boxes[j];
  if (one === other) continue;
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (wide > 2 && high > 4) found.push(`${one.data.slice(0, 30)} | ${other.data.slice(0, 30)}`);
}
const width = document.documentElement.clientWidth;
for (const [node, box] of boxes) {
  const clipped = node.parentElement.closest(".heads, .table, li");
  if (node.data.match(/^[-+]?[\\d.,]+%?$/) && boxes.filter(pair => pair[0] === node).length > 1) {
    found.push(`cut: ${node.data}`);
  }
  if (!clipped && (box.right > width + 1 || box.left < -1)) found.push(`outside: ${node.data}`);
}
return found.slice(0, 20);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a headless Chromium with an empty profile."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows whose words are markup."""
    folder = tmp_path_factory.mktemp("data")
    sentences = []
    for number in range(30):
        words = [MARKUP if number % 3 == 0 else "good", "the", "film", "plot"]
        rows = [
            f"{n + 1}\t{word}\t_\t{'NOUN' if n % 2 else '<b>X</b>'}\t_\t_\t{n}\t"
            f"{'<i>dep</i>' if n else 'root'}"
            for n, word in enumerate(words)
        ]
        sentences.append("\n".join(rows) + "\n")
    (folder / "markup.conllu").write_text("\n".join(sentences) + "\n")
    (folder / "pairs.tsv").write_text(f"own\tenglish_like\na good film\tthe {MARKUP}\n")
    escaped = MARKUP.replace("<", "&lt;")
    instance = (
        '<instance id="{0}"><answer instance="{0}" senseid="{1}"/><context><wf>{2}</wf> '
        "<head><wf>film</wf></head> <wf>plot</wf></context></instance>"
    )
    rows = [instance.format(n, *((escaped, escaped) if n % 2 else ("b", "a"))) for n in range(20)]
    lexical = f'<corpus><lexelt item="film-n">{"".join(rows)}</lexelt></corpus>'
    (folder / "film.xml").write_text(lexical)
    candidates = [
        {"query": MARKUP, "document": text, "label": n} for n, text in enumerate(("film", "plot"))
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, candidates)) + "\n")
    return folder


def commands(name: str, tiny: Path, data: Path, tuned: Path, models: list[Path]) -> tuple[Any, ...]:
    """Return the arguments of a verb."""
    found: dict[str, tuple[Any, ...]] = {
        "attention": ("attention", "--model", tiny, f"a {MARKUP} film"),
        "senses": ("senses", "--model", tiny, data / "film.xml"),
        "isotropy": ("isotropy", "--model", tiny, data / "markup.conllu"),
        "probe": (
            "probe",
            "--model",
            tiny,
            data / "markup.conllu",
            "--mix",
            "--train-rows",
            20,
            "--test-rows",
            10,
        ),
        "heads": ("heads", "--model", tiny, data / "markup.conllu"),
        "prune": ("prune", "--model", tuned / "run", tuned / "dev.jsonl"),
        "accent": ("accent", "--model", models[0], data / "pairs.tsv", "--against", models[1]),
        "retrieval": ("retrieval", "--model", tiny, data / "rows.jsonl"),
    }
    return found[name]


def check(browser: Any, page: Path) -> None:
    """Open a page and look at what the browser did and drew."""
    browser.get_log("performance")
    browser.get_log("browser")
    browser.set_window_size(1100, 900)
    browser.get(page.as_uri())
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert requested == {page.as_uri()}
    assert browser.get_log("browser") == []
    assert browser.title != "run"
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script(OVERLAPS) == []


@pytest.mark.parametrize(
    "name", ["attention", "senses", "isotropy", "probe", "heads", "prune", "accent", "retrieval"]
)
def test_a_page_requests_nothing_and_shows_markup_as_text(
    name: str,
    browser: Any,
    data: Path,
    tiny: Path,
    tuned: Path,
    models: list[Path],
    run: Run,
    tmp_path: Path,
) -> None:
    # Titles name the model.
    page = tmp_path / f"{name}.html"
    command = commands(name, tiny, data, tuned, models)
    result = run(*map(str, command), "--device", "cpu", "--html", page)
    assert result.code == 0, result.errors
    check(browser, page)
    if name in {"attention", "senses"}:
        shown = "".join(browser.execute_script("return document.body.textContent").split())
        assert "<script>" in shown


def test_the_checks_find_what_they_look_for(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    style = "position: absolute; left: 10px; top: 10px"
    page.write_text(f'<p style="{style}">one text</p><p style="{style}">another text</p>')
    browser.get(page.as_uri())
    assert browser.execute_script(OVERLAPS) == ["another text | one text"]
    page.write_text("<img src='missing.png'>")
    with pytest.raises(AssertionError):
        check(browser, page)


def test_the_page_of_a_run_requests_nothing(browser: Any, tuned: Path) -> None:
    check(browser, tuned / "run" / "report.html")


def test_a_chosen_head_and_word_show_their_weights(
    browser: Any, tiny: Path, run: Run, tmp_path: Path
) -> None:
    page = tmp_path / "attention.html"
    arguments = (
        "attention",
        "--model",
        tiny,
        "a good film",
        "--device",
        "cpu",
        "--html",
        page,
        "--json",
    )
    found = json.loads(run(*arguments).output)
    browser.get(page.as_uri())
    for place in ("button[data-head='3']", "#queries li:nth-child(2)"):
        browser.find_element("css selector", place).click()
    said = browser.find_element("id", "said").text
    head = found["heads"][3]
    best = found["words"][head["keys"][1][0]]
    share = round(100 * head["weights"][1][0])
    assert said.startswith(f"Layer 1 head 1. a attends to {best} {share}%")
    lines = browser.execute_script("return document.querySelectorAll('line.on').length")
    assert lines == len(head["keys"][1])
