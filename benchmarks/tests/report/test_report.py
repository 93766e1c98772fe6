"""The report of made-up results: complete, self-contained, readable, and the same every time."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from benchmarks.__main__ import README, main
from benchmarks.records import results as records
from benchmarks.records.front_doors import read_front_doors
from benchmarks.records.resident import read_residents
from benchmarks.records.runs import default, facing
from benchmarks.report.build import make_page
from benchmarks.report.growth import growth_section
from benchmarks.report.html import DARK, write_html
from benchmarks.report.markdown import write_markdown
from benchmarks.report.page import Fold, Items, Picture
from benchmarks.report.pictures import COLOURS
from benchmarks.report.readme import BEGIN, END, readme_table, write_readme
from benchmarks.report.speed import embedding_section, kinds_of
from benchmarks.report.summary import summary_section
from benchmarks.tests.made_up import AWKWARD, RESIDENT, growing, lines, some_results
from benchmarks.tests.report.test_pictures import check_readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.report.page import Block, Page


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
    return make_page(some_results(), residents=[RESIDENT])


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
    assert write_html(make_page(some_results(), residents=[RESIDENT])) == html


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


def test_steps_beside_their_loader_are_no_loss_of_it() -> None:
    ours, *others = lines("pretraining/loader", 1.0, 2.5)
    name = "encoder-engine, the steps alone"
    steps = dataclasses.replace(ours, candidate=name, p50_ms=50.0, ratio_to_best_peer=0.05)
    run = [ours, steps, *others]
    assert [pair.ours for pair in facing(run)] == [ours]
    assert kinds_of([ours, steps, others[0]]) == ["ours", "ours", "peer"]


def test_an_operation_is_shown_with_the_implementation_that_calls_take() -> None:
    first, *others = lines("layer_norm/forward", 2.0, 1.0)
    triton = dataclasses.replace(first, candidate="encoder-engine triton")
    quicker = dataclasses.replace(triton, candidate="encoder-engine aten", p50_ms=0.5)
    shown = [pair.ours for pair in facing([triton, quicker, *others])]
    assert shown == [triton]
    # The machine cannot run it: calls take the next.
    absent = dataclasses.replace(triton, p50_ms=None, status="skipped")
    assert [pair.ours for pair in facing([absent, quicker, *others])] == [quicker]
    # It failed: another one does not stand in for it.
    failed = dataclasses.replace(triton, p50_ms=None, status="failed")
    assert not facing([failed, quicker, *others])
    # A variant that users ask for comes first in its case.
    captured = dataclasses.replace(first, case="encoder_short/1-text", candidate="captured")
    plain = dataclasses.replace(first, case="encoder_short/1-text")
    assert default([captured, plain, *others]) is plain


def test_restricted_runs_stand_with_tokenizers_alone() -> None:
    results = lines("embedding/minilm-float32-short", 1.0, 2.0)
    slow = lines("embedding/minilm-float32-short", 2.0, 2.0, isa="avx2")
    names = [p.name for p in pictures(make_page([*results, *slow]))]
    assert len(names) == len(set(names))


def test_pictures_are_readable(page: Page) -> None:
    found = pictures(page)
    names = [picture.name for picture in found]
    assert len(names) == len(set(names)) > 10
    for picture in found:
        check_readable(picture.draw())
        assert picture.table.rows
        assert all(len(row) == len(picture.table.header) for row in picture.table.rows)


@pytest.mark.exhaustive
def test_pictures_of_what_was_recorded_are_readable() -> None:
    residents = list(read_residents(records.FOLDER))
    recorded = make_page(list(records.read()), residents=residents)
    for picture in pictures(recorded):
        check_readable(picture.draw())


def test_groups_that_were_not_measured_are_left_out_with_a_sentence() -> None:
    page = make_page(lines("tokenizer/xlmr-load", 1.0, 2.0))
    readings = {section.title: section.reading for section in page.sections}
    assert readings["Training"] == "No such case has been measured yet."
    assert Outline(write_html(page)).open == []


def test_nothing_of_ours_measured_is_no_hindrance() -> None:
    results = [
        dataclasses.replace(r, p50_ms=None, status="failed", reason="out of memory")
        if r.role == "ours"
        else r
        for r in some_results()
    ]
    text = write_markdown(make_page(results))
    assert "| encoder-engine | failed | out of memory |" in text


def test_growth_is_drawn_with_its_exponents_and_failures(page: Page) -> None:
    section = next(s for s in page.sections if s.title == "How cost grows")
    picture, failures = section.blocks
    assert isinstance(picture, Picture)
    assert isinstance(failures, Items)
    assert ["encoder-engine", "time", "1.00", "1.00 .. 1.00", "3"] in picture.table.rows
    assert [AWKWARD, "time", "2.00", "2.00 .. 2.00", "2"] in picture.table.rows
    assert failures.items == [f"{AWKWARD} at length 8,192: failed: it needs more than 8 GiB"]
    assert "1.00 with length" in section.reading


def test_growth_with_unlike_threads_is_not_put_together() -> None:
    alone = [dataclasses.replace(r, threads=1, run=f"{r.run} 1") for r in growing(16)]
    alone += [dataclasses.replace(r, threads=1, run=f"{r.run} 1") for r in growing(128)]
    both = [*alone, *growing(16), *growing(128)]
    section = growth_section(records.latest_runs(both))
    names = [block.name for block in section.blocks if isinstance(block, Picture)]
    assert names == ["growth-abacus-2c-2-length", "growth-abacus-2c-1-length"]


def test_a_machine_that_tells_no_memory_has_a_page() -> None:
    results = [
        dataclasses.replace(r, peak_mib=None, peak_of=None)
        for r in [*lines("pretraining/tiny", 1.0, 4.4), *some_results()[:5]]
    ]
    ours, *others = lines("latency/minilm-float32", 1.0, 2.0)
    results += [ours, *(dataclasses.replace(r, peak_mib=None) for r in others)]
    for picture in pictures(make_page(results)):
        check_readable(picture.draw())


def test_a_part_of_the_texts_is_held_to_no_target() -> None:
    results = [
        dataclasses.replace(r, quick=True) for r in lines("embedding/minilm-float32-short", 1, 2)
    ]
    page = make_page(results)
    assert page.reading.startswith("A first answer, on a part of the texts")
    assert "Targets" not in [section.title for section in page.sections]
    assert "Targets" in [s.title for s in make_page(some_results()).sections]


def test_the_command_writes_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records, "read", lambda: iter(some_results()))
    html, markdown = tmp_path / "a" / "folder" / "page.html", tmp_path / "page.md"
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "of-an-earlier-one.svg").touch()
    assert main(["report", "--html", str(html), "--markdown", str(markdown)]) == 0
    assert Outline(html.read_text("utf-8")).open == []
    shown = re.findall(r"!\[.*\]\((page/[^)]*\.svg)\)", markdown.read_text("utf-8"))
    assert shown
    assert {f"page/{path.name}" for path in (tmp_path / "page").iterdir()} == set(shown)
    assert all((tmp_path / name).read_text("utf-8").startswith("<svg ") for name in shown)


def test_without_matplotlib_the_commands_say_so_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "matplotlib" or None)
    for command in (["quick", "-o", str(tmp_path)], ["report", "--html", str(tmp_path / "x.html")]):
        assert main(command) == 1
        assert "need matplotlib" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


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


def test_the_recorded_results_make_a_page(minilm: Path, tmp_path: Path) -> None:
    assert minilm.is_dir()
    found = make_page(
        list(records.read()),
        residents=list(read_residents(records.FOLDER)),
        front_doors=list(read_front_doors(records.FOLDER)),
        every_case=False,
    )
    text = write_markdown(found, tmp_path / "pictures")
    shown = re.findall(r"!\[[^]]*\]\((pictures/[^)]+)\)", text)
    assert sorted(shown) == sorted(f"pictures/{p.name}" for p in (tmp_path / "pictures").iterdir())
    # A picture of one case has five words.
    assert all(
        len(re.findall("<text", (tmp_path / name).read_text("utf-8"))) >= 5 for name in shown
    )


def test_readme_tells_what_the_results_give() -> None:
    text = README.read_text("utf-8")
    expected = write_readme(text, records.latest_runs(list(records.read())))
    assert text == expected, "run: python -m benchmarks report --readme"
