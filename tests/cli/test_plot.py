"""``encoder-engine plot``: one page with every point's text, and nothing asked of a network."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.files import PendingFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = [f"text {row}" for row in range(40)] + ["</script><b>bold</b> & $data", "a" * 999]


@pytest.fixture
def store(run: Run, model: Path, tmp_path: Path) -> Path:
    rows = [{"key": f"row-{row}", "body": text} for row, text in enumerate(TEXTS)]
    rows.insert(7, {"key": "bad", "body": None})  # type: ignore[dict-item]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["embed", tmp_path / "in.jsonl", "-o", f"{tmp_path}/out/", "-m", model, "--quiet"]
    options = ["--column", "body", "--id-column", "key", "--on-error", "skip", "--shard-rows", 9]
    assert run(*command, *options).code == 0
    return tmp_path / "out"


class Page(HTMLParser):
    """Collects what a page holds: its data, its scripts, and every address it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


def test_a_page_shows_every_text_and_names_no_address(
    run: Run, store: Path, tmp_path: Path
) -> None:
    result = run("plot", store, "-o", tmp_path / "map.html")
    assert (result.code, result.errors) == (0, "")
    content = (tmp_path / "map.html").read_text("utf-8")
    page = Page(content)
    assert page.addresses == []
    assert not re.search(r"https?:|//\w|@import|url\(", content.replace(json.dumps(page.data), ""))
    assert "default-src 'none'" in content
    assert len(page.scripts) == 2
    assert page.data["texts"][:41] == TEXTS[:41]
    assert page.data["texts"][41] == "a" * 400 + " ..."
    assert page.data["rows"] == list(range(42))
    assert [axis[:21] for axis in page.data["axes"]] == [
        "principal component 1",
        "principal component 2",
    ]


def test_the_pages_script_draws_axes_and_points_and_shows_texts(
    run: Run, store: Path, tmp_path: Path
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    assert run("plot", store, "-o", tmp_path / "map.html").code == 0
    data, script = Page((tmp_path / "map.html").read_text("utf-8")).scripts
    # What a browser gives the script, as far as it uses it.
    harness = """
        const heard = {}, drawn = { arc: 0, fillText: [] };
        const ink = new Proxy({}, { get: (_, name) => (...values) => {
          if (name === "arc") drawn.arc += 1;
          if (name === "fillText") drawn.fillText.push(values[0]);
        }, set: () => true });
        const element = { textContent: DATA, style: {}, clientWidth: 800, clientHeight: 600,
          offsetWidth: 9, offsetHeight: 9, getContext: () => ink,
          getBoundingClientRect: () => ({ left: 0, top: 0, bottom: 600 }),
          addEventListener: (name, call) => { heard[name] = call; } };
        const note = { style: {}, offsetWidth: 9, offsetHeight: 9 };
        const document = { getElementById: (id) => id === "text" ? note : element };
        const window = { addEventListener: () => {} }, innerWidth = 800, innerHeight = 600;
        SCRIPT
        const before = drawn.arc;
        heard.mousemove({ clientX: across(data.points[7][0]), clientY: down(data.points[7][1]) });
        heard.wheel({ deltaY: -300, clientX: 400, clientY: 300, preventDefault: () => {} });
        heard.dblclick({});
        console.log(JSON.stringify({ before, after: drawn.arc, texts: drawn.fillText,
                                     box: note.textContent }));
    """
    program = harness.replace("DATA", json.dumps(data)).replace("SCRIPT", script)
    ran = subprocess.run([node, "-e", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["before"], found["after"]) == (42, 3 * 42)
    assert any(text.startswith("principal component 2") for text in found["texts"])
    assert sum(bool(re.fullmatch(r"-?[\d.]+", text)) for text in found["texts"]) >= 3 * 6
    assert re.fullmatch(r"row \d+: text \d+", found["box"])


def test_inputs_that_changed_are_refused(run: Run, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    whole = path.read_text("utf-8")
    for changed in (whole.replace("text 3", "text x"), whole + '{"key": "a", "body": "b"}\n'):
        path.write_text(changed, encoding="utf-8")
        result = run("plot", store, "-o", tmp_path / "map.html")
        assert (result.code, "do not hold the rows" in result.errors) == (1, True)
        assert not (tmp_path / "map.html").exists()
    path.unlink()
    assert "does not exist" in run("plot", store, "-o", tmp_path / "map.html").errors
    assert run("plot", store, "-o", tmp_path / "map.html", "--no-texts").code == 0
    assert Page((tmp_path / "map.html").read_text("utf-8")).data["texts"][5] == "row-5"
    assert "--overwrite" in run("plot", store, "-o", tmp_path / "map.html").errors


def test_a_files_texts_are_named(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    out, page = tmp_path / "out.npy", tmp_path / "map.html"
    assert run("embed", tmp_path / "in.txt", "-o", out, "-m", model, "--quiet").code == 0
    assert "name them" in run("plot", out, "-o", page).errors
    assert run("plot", out, "-o", page, "--texts", tmp_path / "in.txt", "--most-rows", 3).code == 0
    assert Page(page.read_text("utf-8")).data["texts"][:2] == ["text 0", "text 20"]
    (tmp_path / "in.txt").write_text("another\n", encoding="utf-8")
    command = ["plot", out, "-o", page, "--texts", tmp_path / "in.txt", "--overwrite"]
    assert "do not hold the rows" in run(*command).errors


def test_neither_the_store_nor_its_inputs_are_replaced(
    run: Run, store: Path, tmp_path: Path
) -> None:
    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    other = tmp_path / "other.jsonl"
    other.write_bytes((tmp_path / "in.jsonl").read_bytes())
    before = contents()
    names = ("out/part-00001.npy", "out/part-00001.ids.txt", "out/_manifest.json", "in.jsonl")
    for name in (*names, "out/_skipped.jsonl", "other.jsonl"):
        result = run("plot", store, "-o", tmp_path / name, "--overwrite", "--texts", other)
        assert (result.code, "is one of the inputs" in result.errors) == (1, True)
    assert contents() == before


def test_a_full_disk_is_told_of_the_page(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: PendingFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PendingFile, "publish", fail)
    result = run("plot", store, "-o", tmp_path / "map.html")
    assert result.code == 1
    assert "map.html could not be written: No space left on device" in result.errors
    assert not list(tmp_path.glob("map.html*"))
