"""Draws bars and lines as SVG whose colours a page can change, the same bytes every time."""

from __future__ import annotations

import io
import itertools
import math
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["ours", "peer", "loss"]
# By the names of the page's variables; no two alike, since they are found again by their value.
COLOURS = {
    "ink": "#1b1b1f",
    "faint": "#d9d9df",
    "ours": "#1a56b0",
    "peer": "#9aa1b0",
    "loss": "#c8500e",
    "line": "#4d4d57",
    "one": "#2b8a5e",
    "two": "#a57c00",
    "three": "#8a4fb0",
    "four": "#0f8396",
    "five": "#b8456a",
}
# Of lines, in their order.
LINES = ("ours", "loss", "one", "two", "three", "four", "five", "peer", "line")
WIDTH, FONT_SIZE = 6.4, 9
_HEAD, _ROW, _LINE = 0.62, 0.17, 0.14
# Of 72 to an inch: how wide a character is about, and how much room panels have for their bars.
_CHARACTER, _MARGIN = 5.2, 26
_MOST_TICKS = 5
# Of a legend.
_COLUMNS = 2
# The least room for a number of an axis of logarithms.
_TICK = 34
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "encoder-engine",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": FONT_SIZE,
    "axes.unicode_minus": False,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "xtick.color": COLOURS["ink"],
    "ytick.color": COLOURS["ink"],
    "axes.edgecolor": COLOURS["faint"],
    "grid.color": COLOURS["faint"],
}


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One bar per candidate along ``axis``, whose label names the quantity and its unit.

    ``texts`` stand at the bars' ends; a bar without a value is its text alone. ``start`` is where
    bars begin, and ``line`` a value that is marked.
    """

    axis: str
    values: Sequence[float | None]
    texts: Sequence[str]
    log: bool = False
    start: float = 0.0
    line: float | None = None


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Points of each candidate over two axes."""

    x_axis: str
    y_axis: str
    points: Sequence[Sequence[tuple[float, float]]]
    log: bool = False


def draw_bars(names: Sequence[str], kinds: Sequence[Kind], panels: Sequence[Bars]) -> Figure:
    """Draw bars from top to bottom, in panels side by side that share the names.

    A panel without any value is left out.
    """
    panels = [panel for panel in panels if any(v is not None for v in panel.values)] or panels[:1]
    rows = sum(_ROW + _LINE * (1 + name.count("\n")) for name in names)
    with _settings():
        figure, all_axes = _subplots(_HEAD + rows, len(panels))
        longest = max(len(line) for name in names for line in name.split("\n"))
        room = (72 * WIDTH - _MARGIN - _CHARACTER * longest) / len(panels) - _MARGIN
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw_panel(axes, kinds, panel, room)
            axes.set_yticks(range(len(names)), names if axes is all_axes[0] else [""] * len(names))
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
    return figure


def _draw_panel(axes: Axes, kinds: Sequence[Kind], panel: Bars, room: float) -> None:
    ends = [max(panel.start, value or panel.start) for value in panel.values]
    low = min([panel.start, *(value for value in panel.values if value is not None)])
    # What is left of the panel's width where a bar's text is beside it.
    shares = [max(0.3, 1 - (_CHARACTER * len(text) + 8) / room) for text in panel.texts]
    if panel.log:
        axes.set_xscale("log")
        low /= 1.15
        spans = zip(ends, shares, strict=True)
        high = low * math.exp(max(math.log(end / low) / share for end, share in spans))
        ticks = log_ticks(low, high, _TICK / room)
    else:
        ends = [*ends, panel.line or 0.0]
        high = max(end / share for end, share in zip(ends, [*shares, 1.0], strict=True)) or 1.0
        ticks = [tick for tick in even_ticks(high) if tick <= high]
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [tick_text(tick) for tick in ticks])
    axes.minorticks_off()
    for place, (value, text, kind) in enumerate(zip(panel.values, panel.texts, kinds, strict=True)):
        if value is not None:
            axes.barh(place, value - panel.start, left=panel.start, color=COLOURS[kind], height=0.6)
        axes.annotate(
            text, (ends[place], place), (4, 0), textcoords="offset points", va="center", ha="left"
        )
    if panel.line is not None:
        axes.axvline(panel.line, color=COLOURS["line"], linewidth=1)
    axes.grid(axis="x")
    _finish(axes, panel.axis)


def draw_lines(names: Sequence[str], panels: Sequence[Lines]) -> Figure:
    """Draw lines of the same candidates in adjacent panels."""
    with _settings():
        legend = math.ceil(len(names) / _COLUMNS) if len(names) > 1 else 0
        figure, all_axes = _subplots(2.6 + 0.2 * legend, len(panels))
        for axes, panel in zip(all_axes, panels, strict=True):
            for place, points in enumerate(panel.points):
                colour = COLOURS[LINES[place % len(LINES)]]
                marker = "o" if len(points) <= 20 else ""
                xs, ys = [x for x, _ in points], [y for _, y in points]
                axes.plot(xs, ys, color=colour, marker=marker, markersize=3.5, linewidth=1.4)
            _scale(axes, panel)
            axes.grid()
            _finish(axes, panel.x_axis)
            axes.set_ylabel(panel.y_axis)
        if legend:
            handles = all_axes[0].get_lines()
            figure.legend(
                handles,
                names,
                loc="outside lower center",
                ncols=_COLUMNS,
                frameon=False,
                fontsize=8,
            )
    return figure


def _scale(axes: Axes, panel: Lines) -> None:
    xs, ys = zip(*(point for points in panel.points for point in points), strict=True)
    if panel.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = min(ys) / 1.3, max(ys) * 1.3
        across = max(max(xs) / min(xs), 1.01)
        x_ticks, y_ticks = thin(sorted(set(xs)), across, 0.2), log_ticks(low, high, 0.12)
        axes.set_ylim(low, high)
    else:
        x_ticks, y_ticks = even_ticks(max(xs)), even_ticks(max(ys))
        axes.set_xlim(0, x_ticks[-1])
        axes.set_ylim(0, y_ticks[-1])
    axes.set_xticks(x_ticks, [tick_text(tick) for tick in x_ticks])
    axes.set_yticks(y_ticks, [tick_text(tick) for tick in y_ticks])
    axes.minorticks_off()


def log_ticks(low: float, high: float, apart: float) -> list[float]:
    """Choose round numbers on a log axis, at least ``apart`` of its length from each other."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if _far_enough(ticks, (high / low) ** apart):
            return ticks
    return thin(ticks, high / low, apart)


def _far_enough(ticks: Sequence[float], ratio: float) -> bool:
    return all(after / before >= ratio for before, after in itertools.pairwise(ticks))


def even_ticks(high: float) -> list[float]:
    """Choose round numbers from 0 to beyond the largest, or nearly so."""
    step = 10.0 ** math.floor(math.log10(high))
    steps = [factor * step for factor in (0.2, 0.25, 0.5, 1, 2, 2.5)]
    step = next(step for step in steps if _MOST_TICKS * step > high)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def thin(ticks: Sequence[float], span: float, apart: float) -> list[float]:
    """Leave some out, in even steps, where they are nearer on an axis of logarithms."""
    steps = (list(ticks[::step]) for step in range(1, len(ticks) + 1))
    return next((few for few in steps if _far_enough(few, span**apart)), list(ticks[:1]))


def tick_text(value: float) -> str:
    """Write a number of an axis."""
    if value == 0 or 1e-3 <= value < 1e4:
        return f"{value:.6g}"
    if value < 1:
        return f"{value:.0e}".replace("e-0", "e-")
    if value < 1e6:
        return f"{value / 1e3:g}k"
    return f"{value / 1e6:g}M" if value < 1e9 else f"{value / 1e9:g}G"


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.patch.set_visible(False)


def _settings() -> Any:
    import matplotlib as mpl

    return mpl.rc_context(SETTINGS)


def _subplots(height: float, number: int) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.08))
    axes: Sequence[Axes] = figure.subplots(1, number, squeeze=False)[0]
    return figure, axes


def standalone_svg(figure: Figure, name: str) -> str:
    """Write a picture as a file, on white paper."""
    return _svg(figure, name).replace("<svg ", '<svg style="background: white" ', 1)


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Write a picture as a part of a page, in the page's own colours."""
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", _svg(figure, name)).replace("xlink:href", "href")
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def _svg(figure: Figure, name: str) -> str:
    """Remove metadata from an SVG, and make its element ids unique on the page."""
    figure.patch.set_visible(False)
    file = io.StringIO()
    with _settings():
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", metadata=metadata)
    text = file.getvalue()
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    head, rest = text.split(">", 1)
    text = re.sub(r' (?:width|height)="[^"]*"', "", head) + ">" + rest
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
