"""Drawings for reports, as SVG: scatter plots, line plots, and grids of shades."""

from __future__ import annotations

from html import escape
from itertools import groupby
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["draw_curves", "draw_grid", "draw_lines", "draw_points", "round_ticks"]

# Distinct also to most colour-blind readers (Okabe & Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7a00")
_WIDTH, _HEIGHT, _MARGIN = 800, 420, 56
_CELL = 26
_UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1))


def draw_points(points: Mapping[str, Sequence[tuple[float, float, str]]]) -> str:
    """Return an SVG of points (x, y, title), coloured by group; ``points``: by the group's name."""
    everything = [point for group in points.values() for point in group]
    xs, ys = [x for x, _, _ in everything], [y for _, y, _ in everything]
    drawn = []
    for number, group in enumerate(points.values()):
        colour = COLOURS[number % len(COLOURS)]
        for x, y, title in group:
            drawn.append(
                f'<circle cx="{_across(x, xs):.1f}" cy="{_upward(y, ys):.1f}" r="4" '
                f'fill="{colour}" fill-opacity="0.6"><title>{escape(title)}</title></circle>'
            )
    return _with_legend(drawn, list(points))


def draw_lines(lines: Mapping[str, Sequence[float]], ticks: Sequence[str]) -> str:
    """Return an SVG with one line per name, over the x positions that ``ticks`` labels.

    The vertical axis starts at 0, or at the least value where one is negative. A value that is not
    finite leaves a gap; a value between two gaps is a dot.
    """
    values = [value for line in lines.values() for value in line if isfinite(value)] + [0.0]
    places = [0.0, max(1.0, len(ticks) - 1.0)]
    curves = {name: list(enumerate(line)) for name, line in lines.items()}
    return _with_legend(_plot(curves, (places, values), list(enumerate(ticks))), list(lines))


def draw_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]], across: str, upward: str
) -> str:
    """Return an SVG with a line for each name through points (x, y); x starts at 0.

    ``across``, ``upward``: the names of the axes.
    """
    xs = [0.0] + [x for curve in curves.values() for x, _ in curve]
    ys = [y for curve in curves.values() for _, y in curve if isfinite(y)] or [0.0]
    drawn = _plot(curves, (xs, ys), round_ticks(xs))
    drawn += [
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>',
        f'<text x="{_MARGIN}" y="{_MARGIN - 16}">{escape(upward)}</text>',
    ]
    return _with_legend(drawn, list(curves))


def round_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return about five round numbers in the range of values, with their labels.

    The numbers are multiples of 1, 2 or 5 times a power of ten.
    """
    low, high = min(values), max(values)
    if low == high:
        return [(low, f"{low:.6g}")]
    largest = max(abs(low), abs(high))
    rough = (high - low) / 5
    power = 10.0 ** floor(log10(rough))
    # The quotients are as far from whole numbers as float64 rounds them.
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough * (1 - 1e-9))
    numbers = range(ceil(low / step - 1e-6), floor(high / step + 1e-6) + 1)
    unit, size = next((u, s) for u, s in _UNITS if s == 1 or (largest >= s and step >= s / 10))
    # Digits enough to tell neighbours apart.
    digits = max(6, ceil(log10(largest / step)) + 1)
    return [(n * step, f"{n * step / size:.{digits}g}{unit if n else ''}") for n in numbers]


def _plot(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    within: tuple[Sequence[float], Sequence[float]],
    ticks: Sequence[tuple[float, str]],
) -> list[str]:
    """Return SVG elements: grid lines at round y values, the labels of x, and the curves.

    within: x values and y values; their least and greatest are the edges of the plot.
    ticks: the labels of x, each with its value.
    """
    xs, ys = within
    drawn = []
    for value, name in round_ticks(ys):
        y = _upward(value, ys)
        ends = f'x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y:.1f}" y2="{y:.1f}"'
        drawn.append(f'<line {ends} stroke="#ddd"/>')
        drawn.append(
            f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
    drawn += [
        f'<text x="{_across(x, xs):.1f}" y="{_HEIGHT - _MARGIN + 18}" '
        f'text-anchor="middle">{escape(name)}</text>'
        for x, name in ticks
    ]
    for number, curve in enumerate(curves.values()):
        colour = COLOURS[number % len(COLOURS)]
        for there, part in groupby(curve, lambda point: isfinite(point[1])):
            points = [(_across(x, xs), _upward(y, ys)) for x, y in part if there]
            if len(points) == 1:
                ((x, y),) = points
                drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>')
            elif points:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                drawn.append(
                    f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
                )
    return drawn


def draw_grid(
    shades: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: Sequence[Sequence[str]],
) -> str:
    """Return an SVG grid of cells from 0 (white) to 1 (blue), each with its title as tooltip.

    rows, columns: the labels of the grid.
    """
    left = _MARGIN + 40
    drawn = [
        f'<text x="{left + _CELL * (n + 0.5)}" y="14" text-anchor="middle">{escape(name)}</text>'
        for n, name in enumerate(columns)
    ]
    for r, name in enumerate(rows):
        top = 22 + r * _CELL
        drawn.append(f'<text x="{left - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>')
        for c, shade in enumerate(shades[r]):
            drawn.append(
                f'<rect x="{left + c * _CELL}" y="{top}" width="{_CELL - 2}" height="{_CELL - 2}" '
                f'fill="#0050a0" fill-opacity="{min(1.0, max(0.02, shade)):.2f}" stroke="#ddd">'
                f"<title>{escape(titles[r][c])}</title></rect>"
            )
    width = max(_WIDTH, left + _CELL * len(columns))
    return _svg(drawn, 30 + _CELL * len(rows), width)


def _across(x: float, xs: Sequence[float]) -> float:
    return _MARGIN + _share(x, xs) * (_WIDTH - 2 * _MARGIN)


def _upward(y: float, ys: Sequence[float]) -> float:
    return _HEIGHT - _MARGIN - _share(y, ys) * (_HEIGHT - 2 * _MARGIN)


def _share(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return (value - low) / (high - low) if high > low else 0.5


def _with_legend(drawn: Sequence[str], names: Sequence[str]) -> str:
    """Return the SVG of a drawing under a legend of the groups' names."""
    lower = max(0, 15 * (len(names) - 2))
    body = [f'<g transform="translate(0 {lower})">', *drawn, "</g>"]
    return _svg([*body, *_legend(names)], _HEIGHT + lower)


def _legend(names: Sequence[str]) -> list[str]:
    return [
        f'<text x="{_MARGIN + 8}" y="{16 + 15 * number}" fill="{COLOURS[number % len(COLOURS)]}">'
        f"{escape(name)}</text>"
        for number, name in enumerate(names)
    ]


def _svg(parts: Sequence[str], height: int, width: int = _WIDTH) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img">\n' + "\n".join(parts) + "\n</svg>"
