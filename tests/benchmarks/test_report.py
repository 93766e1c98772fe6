"""The report of made-up results: complete, self-contained, readable, and the same every time."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import results as records
from benchmarks.__main__ import README, main
from benchmarks.report.build import make_page
from benchmarks.report.details import missing_section
from benchmarks.report.html import DARK, write_html
from benchmarks.report.markdown import write_markdown
from benchmarks.report.padding import make_section, padding_share, text_lengths
from benchmarks.report.page import Fold, Items, Picture
from benchmarks.report.pictures import COLOURS, Bars, Lines, draw_bars, draw_lines
from benchmarks.report.readme import BEGIN, END, readme_table, write_readme
from benchmarks.report.speed import embedding_section
from benchmarks.report.summary import summary_section
from benchmarks.resident import Resident, read_residents
from benchmarks.withdrawn import WITHDRAWN
from tests.benchmarks.test_compare import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from benchmarks.report.page import Block, Page
    from benchmarks.results import Result

PADDING = make_section({"short": [3, 9, 4] * 20, "skewed": [16, 250, 30] * 20, "long": [512] * 9})
RESIDENT = Resident(
    device="abacus-2c",
    rows=4000,
    seconds=[0.5 * number for number in range(1000)],
    mib=[500.0 - 300.0 / (1 + number) for number in range(1000)],
    again_seconds=6.0,
)
AWKWARD = 'peer <b> & "co"'


def lines(case: str, ours_ms: float, peer_ms: float, **fields: Any) -> list[Result]:
    """Make a run: ours, two peers, one that is wrong and one that is not there."""
    common = dataclasses.replace(
        TEMPLATE,
        run=" ".join(map(str, (case, *fields.values()))),
        case=case,
        amounts={"documents": 10, "tokens": 100, "bytes": 10**6, "texts": 10},
        ceilings={"operations": 1e9},
        versions={"torch": "2.13.0"},
        **fields,
    )

    def one(name: str, role: str, ms: float, peak_mib: float) -> Result:
        return dataclasses.replace(
            common,
            candidate=name,
            role=role,
            p50_ms=ms,
            p20_ms=ms,
            p80_ms=ms,
            p99_ms=2 * ms,
            cpu_p50_ms=ms,
            peak_mib=peak_mib,
            peak_of="process",
            gate={"mean_cosine": 1 - ms * 1e-6, "min_cosine": 0.9999995},
            throughput_per_s={what: 1e3 * n / ms for what, n in common.amounts.items()},
            fraction_of_limit=0.1 / ms,
            best_peer=AWKWARD,
            ratio_to_best_peer=peer_ms / ms,
        )

    return [
        one("encoder-engine", "ours", ours_ms, 80.0),
        one(AWKWARD, "peer", peer_ms, 99.5),
        one("sentence-transformers", "peer", 3 * peer_ms, 1234.0),
        dataclasses.replace(
            common,
            candidate="wrong",
            role="peer",
            status="gate failed",
            reason="mean cosine is too low",
            gate={"mean_cosine": 0.9, "min_cosine": 0.5},
        ),
        dataclasses.replace(
            common, candidate="absent", role="peer", status="skipped", reason="not installed"
        ),
    ]


def some_results() -> list[Result]:
    """Make a case of every section, a loss among them, and a second machine."""
    return [
        *lines("embedding/minilm-float32-short", 0.5, 0.61),
        *lines("embedding/minilm-int8-skewed", 1.0, 0.8),
        *lines("latency/minilm-bfloat16", 5.0, 3.9),
        *lines("cold_start/minilm-float32", 900.0, 4000.0),
        *lines("drop_in/encode-skewed", 1.0, 1.7),
        *lines("pretraining/tiny", 1.0, 4.4),
        *lines("tokenizer/wordpiece-english", 1.0, 7.9, threads=1),
        *lines("tokenizer/wordpiece-english", 1.0, 5.9, isa="avx2"),
        *lines("tokenizer/xlmr-offsets", 1.0, 177.0),
        *lines("layer_norm/forward", 1.0, 1.1),
        *(line for length in (16, 128, 1024, 8192) for line in growing(length)),
        *lines("encoder/mixed", 0.3, 0.9, device="nvidia-h200", device_name="NVIDIA H200"),
    ]


def growing(length: int) -> list[Result]:
    """Make a run at a length, where a peer has no memory for the longest."""
    ours, peer, *_ = lines(f"growth/length-{length}", 0.1 * length, 0.01 * length**2)
    results = [
        dataclasses.replace(
            r,
            peak_of="call",
            samples_ms=[r.p50_ms or 0.0] * 5,
            amounts={"sequences": 1, "tokens": length},
        )
        for r in (ours, peer)
    ]
    if length > 1024:
        results[1] = dataclasses.replace(
            results[1], p50_ms=None, status="failed", reason="it needs more than 8 GiB"
        )
    return results


def pictures(page: Page) -> list[Picture]:
    """Collect the pictures of a page."""

    def within(blocks: Sequence[Block]) -> Iterator[Picture]:
        for block in blocks:
            if isinstance(block, Picture):
                yield block
            elif isinstance(block, Fold):
                yield from within(block.blocks)

    return [picture for section in page.sections for picture in within(section.blocks)]


class Outline(HTMLParser):
    """Collects what a page opens and closes, its ids, and all that it refers to."""

    VOID = frozenset(("meta", "br", "link", "img"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.references.append(value or "")


@pytest.fixture(scope="module")
def page() -> Page:
    return make_page(some_results(), residents=[RESIDENT], padding=PADDING)


@pytest.fixture(scope="module")
def html(page: Page) -> str:
    return write_html(page)


def test_the_page_stands_alone_and_is_well_formed(html: str) -> None:
    outline = Outline(html)
    assert outline.open == []
    assert "script" not in outline.tags
    assert len(outline.ids) == len(set(outline.ids))
    for reference in outline.references:
        assert reference.startswith("#")
        assert reference[1:] in outline.ids
    for found in re.findall(r"url\(([^)]*)\)", html):
        assert found[1:] in outline.ids
    assert "http" not in html


def test_names_are_escaped(html: str) -> None:
    assert "<b>" not in html
    assert "peer &lt;b&gt; &amp; " in html


def test_two_pages_are_the_same_to_the_byte(html: str) -> None:
    assert write_html(make_page(some_results(), residents=[RESIDENT], padding=PADDING)) == html


def test_colours_are_the_pages_own_in_light_and_dark(html: str) -> None:
    assert DARK.keys() == COLOURS.keys()
    assert len(set(COLOURS.values())) == len(COLOURS)
    body = html.partition("<body>")[2]
    assert not any(colour in body for colour in COLOURS.values())
    assert "prefers-color-scheme: dark" in html


def test_every_section_says_what_it_shows(page: Page) -> None:
    titles = [section.title for section in page.sections]
    assert len(titles) == len(set(titles))
    for section in page.sections:
        assert section.reading.endswith(".")
        assert "not been measured" not in section.reading.lower() or not section.blocks
    summary = page.sections[0].reading
    assert "In 8 of 10 comparisons" in summary
    assert "MiniLM in int8: passages of mixed length (0.80x" in summary


def test_who_is_alone_beside_is_called_no_fastest_of_others() -> None:
    contest = lines("embedding/minilm-float32-short", 1.0, 2.0)
    alone = lines("dataset/minilm-bfloat16-sentences", 1.0, 11.0)
    alone = [r for r in alone if r.candidate in ("encoder-engine", AWKWARD, "absent")]
    runs = [contest, alone]
    summary = summary_section(runs)
    assert "In 1 of 1 comparison " in summary.reading
    assert "Of 1 more, with one other tool alone, it is in 1." in summary.reading
    (picture,) = summary.blocks
    assert isinstance(picture, Picture)
    only = "beside: sentence-transformers as it comes, in float32"
    assert [row[2] for row in picture.table.rows] == [f"best of 3: {AWKWARD}", only]
    reading = embedding_section(runs).reading
    assert "of 1 case with several other tools" in reading
    assert "at best 2.00x" in reading
    assert f"| {only}, " in readme_table(runs)


def test_a_failure_of_ours_counts_and_is_named() -> None:
    won = lines("layer_norm/forward", 1.0, 2.0)
    wrong, *others = lines("geglu/forward", 1.0, 2.0)
    wrong = dataclasses.replace(wrong, p50_ms=None, status="gate failed", reason="too far off")
    reading = summary_section([won, [wrong, *others]]).reading
    assert "In 1 of 2 comparisons" in reading
    assert "no right result in: geglu/forward, encoder-engine (too far off)" in reading
    assert "In 0 of 1 comparison" in summary_section([[wrong, *others]]).reading


def test_restricted_runs_stand_with_tokenizers_alone() -> None:
    results = lines("embedding/minilm-float32-short", 1.0, 2.0)
    slow = lines("embedding/minilm-float32-short", 2.0, 2.0, isa="avx2")
    names = [p.name for p in pictures(make_page([*results, *slow], padding=PADDING))]
    assert len(names) == len(set(names))


def check_readable(figure: Figure) -> None:
    """Every axis is named with its unit; no text lies on another or beyond the paper."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    for axes in figure.axes:
        assert re.search(r"\(.+\)", axes.get_xlabel()), axes.get_xlabel()
        named = any(label.get_text() for label in figure.axes[0].get_yticklabels())
        assert named or axes.get_ylabel()
    seen = [
        (text.get_text(), text.get_window_extent(renderer).padded(-1))
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    ]
    paper = figure.bbox.padded(1)
    for words, box in seen:
        assert paper.containsx(box.x0), words
        assert paper.containsx(box.x1), words
        assert paper.containsy(box.y0), words
        assert paper.containsy(box.y1), words
    for (one, box), (other, its) in combinations(seen, 2):
        assert not box.overlaps(its), f"{one!r} lies on {other!r}"


def test_pictures_are_readable(page: Page) -> None:
    found = pictures(page)
    names = [picture.name for picture in found]
    assert len(names) == len(set(names)) > 10
    for picture in found:
        check_readable(picture.draw())
        assert picture.table.rows
        assert all(len(row) == len(picture.table.header) for row in picture.table.rows)


def test_pictures_of_what_was_recorded_are_readable() -> None:
    residents = list(read_residents(records.FOLDER))
    recorded = make_page(list(records.read()), residents=residents, padding=PADDING)
    for picture in pictures(recorded):
        check_readable(picture.draw())


@pytest.mark.parametrize(
    "values", [[0.33, 177.0], [1.02, 1.78], [0.77], [1e-13, 2e-5], [3e-3, 7e-3, 4e-3]]
)
def test_bars_of_any_range_are_readable(values: list[float]) -> None:
    bars = Bars(
        axis="ratio (times)", values=values, texts=["0.77x, slower"] * len(values), log=True,
        start=min(1.0, min(values)),
    )  # fmt: skip
    names = [f"a case with a name\nbest other: {number}" for number in range(len(values))]
    check_readable(draw_bars(names, ["ours"] * len(values), [bars]))
    even = dataclasses.replace(bars, log=False, start=0.0)
    check_readable(draw_bars(names, ["ours"] * len(values), [even, even]))


def test_lines_are_readable() -> None:
    points = [[(16.0, 9e5), (512.0, 3e5), (8192.0, 2e4)], *[[(16.0, 1e5), (512.0, 9e4)]] * 4]
    names = ["encoder-engine", *(f"transformers, one batch, compiled {n}" for n in range(4))]
    for log in (True, False):
        panel = Lines(x_axis="length (tokens)", y_axis="speed (tokens/s)", points=points, log=log)
        check_readable(draw_lines(names, [panel, panel]))


def test_groups_that_were_not_measured_are_left_out_with_a_sentence() -> None:
    page = make_page(lines("tokenizer/xlmr-load", 1.0, 2.0), padding=PADDING)
    readings = {section.title: section.reading for section in page.sections}
    assert readings["Pretraining"] == "No such case has been measured yet."
    assert Outline(write_html(page)).open == []


def test_nothing_of_ours_measured_is_no_hindrance() -> None:
    results = [
        dataclasses.replace(r, p50_ms=None, status="failed", reason="out of memory")
        if r.role == "ours"
        else r
        for r in some_results()
    ]
    text = write_markdown(make_page(results, padding=PADDING))
    assert "| encoder-engine | failed | out of memory |" in text


def test_a_withdrawn_run_counts_nowhere_and_is_named() -> None:
    (run, reason), *_ = WITHDRAWN.items()
    results = [
        dataclasses.replace(r, run=run) for r in lines("dataset/minilm-int8-sentences", 1.0, 9.0)
    ]
    assert records.latest_runs(results) == []
    section = missing_section([], results)
    assert any(reason in getattr(block, "words", "") for block in section.blocks)


def test_growth_is_drawn_with_its_exponents_and_failures(page: Page) -> None:
    section = next(s for s in page.sections if s.title == "How cost grows")
    picture, failures = section.blocks
    assert isinstance(picture, Picture)
    assert isinstance(failures, Items)
    assert ["encoder-engine", "time", "1.00", "1.00 .. 1.00", "3"] in picture.table.rows
    assert [AWKWARD, "time", "2.00", "2.00 .. 2.00", "2"] in picture.table.rows
    assert failures.items == [f"{AWKWARD} at length 8,192: failed: it needs more than 8 GiB"]
    assert "1.00 with length" in section.reading


def test_padding_is_counted_batch_by_batch() -> None:
    assert padding_share([4, 4, 4], 2) == 0.0
    assert padding_share([1, 3], 2) == pytest.approx(2 / 6)
    assert padding_share([1, 3, 2], 2) == pytest.approx(2 / 8)
    assert padding_share([], 8) == 0.0


def test_padding_is_that_of_the_embedding_cases(minilm: Path) -> None:
    assert minilm.is_dir()
    lengths = text_lengths("skewed", smoke=True)
    assert max(lengths) <= 256
    assert padding_share(lengths, 8) > 0


def test_the_command_writes_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records, "read", lambda: iter(some_results()))
    html, markdown = tmp_path / "page.html", tmp_path / "page.md"
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "of-an-earlier-one.svg").touch()
    assert main(["report", "--html", str(html), "--markdown", str(markdown)]) == 0
    assert Outline(html.read_text("utf-8")).open == []
    shown = re.findall(r"!\[.*\]\((page/[^)]*\.svg)\)", markdown.read_text("utf-8"))
    assert shown
    assert {f"page/{path.name}" for path in (tmp_path / "page").iterdir()} == set(shown)
    assert all((tmp_path / name).read_text("utf-8").startswith("<svg ") for name in shown)


def test_readmes_table_has_losses_and_what_is_not_measured() -> None:
    table = readme_table(records.latest_runs(some_results()))
    assert "**0.80x, slower**" in table
    assert '| best of 3: peer <b> & "co", 127 MB/s | 7.90x | Abacus, 1 thread,' in table
    assert "a step of pretraining, BERT-base | not measured yet |" in table
    assert "Slower in" not in table
    lost = readme_table([lines("tokenizer/xlmr-load", 2.0, 1.0), lines("import/package", 2.0, 1.0)])
    assert "Slower in 1 more: Unigram (XLM-R): loading the vocabulary (0.50x" in lost
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert write_readme(text, []) == f"before\n{readme_table([])}\nafter\n"
    with pytest.raises(ValueError, match="no place for the table"):
        write_readme("nothing", [])


def test_the_committed_page_tells_what_the_results_give(minilm: Path, tmp_path: Path) -> None:
    assert minilm.is_dir()
    residents = list(read_residents(records.FOLDER))
    found = make_page(list(records.read()), residents=residents, every_case=False)
    expected = write_markdown(found, tmp_path / "benchmark-report")
    docs = README.parent / "docs"
    command = "python -m benchmarks report --readme --markdown docs/benchmark-report.md"
    assert (docs / "benchmark-report.md").read_text("utf-8") == expected, f"run: {command}"
    drawn, kept = (
        {path.name: words_of(path) for path in (folder / "benchmark-report").iterdir()}
        for folder in (tmp_path, docs)
    )
    assert kept == drawn, f"run: {command}"


def words_of(picture: Path) -> list[str]:
    """Give all that is written in it; lines differ between versions of matplotlib."""
    found = re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text("utf-8"))
    assert len(found) > 5
    return found


def test_readme_tells_what_the_results_give() -> None:
    text = README.read_text("utf-8")
    expected = write_readme(text, records.latest_runs(list(records.read())))
    assert text == expected, "run: python -m benchmarks report --readme"
