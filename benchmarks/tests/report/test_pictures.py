"""Pictures of any values: every word can be read, and none lies on another."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from benchmarks.report.pictures import Bars, Lines, draw_bars, draw_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def test_what_nothing_is_known_of_has_no_panel() -> None:
    known = Bars(axis="speed (1/s)", values=[1.0, 2.0], texts=["1", "2"])
    unknown = Bars(axis="memory (MiB)", values=[None, None], texts=["", ""])
    figure = draw_bars(["one", "two"], ["ours", "peer"], [known, unknown])
    assert [axes.get_xlabel() for axes in figure.axes] == ["speed (1/s)"]
    check_readable(figure)
    check_readable(draw_bars(["one", "two"], ["ours", "peer"], [unknown]))
