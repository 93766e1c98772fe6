"""Draws a line over two labelled axes as SVG, for the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 50
_TICKS = 5


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What a direction means; it begins at 0."""

    label: str
    values: Sequence[float]

    @property
    def end(self) -> float:
        """Where the axis ends: a round number beyond the values."""
        largest = max(self.values)
        step = 10 ** np.floor(np.log10(largest / _TICKS)) if largest > 0 else 1.0
        widths = [factor * step for factor in (1, 2, 2.5, 5, 10)]
        return float(_TICKS * next(width for width in widths if width * _TICKS >= largest))

    @property
    def ticks(self) -> list[float]:
        """The numbers written beside it."""
        return [self.end * number / _TICKS for number in range(_TICKS + 1)]


def line_figure(title: str, x: Axis, y: Axis) -> str:
    """Draw y over x."""

    def across(value: float) -> float:
        return _LEFT + value / x.end * (WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return HEIGHT - _BOTTOM - value / y.end * (HEIGHT - _TOP - _BOTTOM)

    points = " ".join(
        f"{across(a):.1f},{down(b):.1f}" for a, b in zip(x.values, y.values, strict=True)
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 20, title, size=14),
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 10, x.label),
        f'<g transform="rotate(-90 16 {(HEIGHT + _TOP - _BOTTOM) / 2:.0f})">'
        + _text(16, (HEIGHT + _TOP - _BOTTOM) / 2, y.label)
        + "</g>",
    ]
    foot = HEIGHT - _BOTTOM + 18
    lines += [_text(across(value), foot, f"{value:g}") for value in x.ticks]
    for value in y.ticks:
        lines.append(_text(_LEFT - 8, down(value) + 4, f"{value:g}", anchor="end"))
        lines.append(
            f'<path d="M{_LEFT} {down(value):.1f}H{WIDTH - _RIGHT}" stroke="#ddd" fill="none"/>'
        )
    lines.append(f'<polyline points="{points}" fill="none" stroke="#1a56b0" stroke-width="1.5"/>')
    return "\n".join([*lines, "</svg>", ""])


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
