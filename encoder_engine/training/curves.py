"""Draws a run's losses as an SVG file, from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw_curves"]

WIDTH, HEIGHT, MARGIN = 720, 400, 56
SMOOTHED = 0.9
Points = list[tuple[float, float]]


def draw_curves(records: Sequence[dict[str, Any]]) -> str:
    """Return an SVG of the smoothed training loss and the held-out loss over tokens."""
    training = _smoothed([(r["tokens"], r["loss"]) for r in records if "loss" in r])
    evaluations = [(r["tokens"], r["evaluation"]) for r in records if "evaluation" in r]
    held_out = [(x, scores["mlm_loss"]) for x, scores in evaluations if "mlm_loss" in scores]
    points = training + held_out
    if not points:
        return _svg([])
    right = max(x for x, _ in points) or 1.0
    low, high = min(y for _, y in points), max(y for _, y in points)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = MARGIN + point[0] / right * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - (point[1] - low) / (high - low) * (HEIGHT - 2 * MARGIN)
        return round(x, 1), round(y, 1)

    parts = _axes(right, low, high, place)
    parts += _line([place(p) for p in training], "#3465a4")
    drawn = [place(p) for p in held_out]
    parts += _line(drawn, "#cc4400")
    parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="#cc4400"/>' for x, y in drawn]
    for row, (name, colour) in enumerate((("training", "#3465a4"), ("held out", "#cc4400"))):
        parts.append(_text(WIDTH - MARGIN, MARGIN + 16 * row, name, anchor="end", fill=colour))
    return _svg(parts)


def _smoothed(points: Points) -> Points:
    smooth, mean, weight = [], 0.0, 0.0
    for x, y in points:
        mean, weight = SMOOTHED * mean + (1 - SMOOTHED) * y, SMOOTHED * weight + (1 - SMOOTHED)
        smooth.append((x, mean / weight))
    return smooth


def _axes(right: float, low: float, high: float, place: Any) -> list[str]:
    parts = []
    for tick in range(5):
        value = low + (high - low) * tick / 4
        x, y = place((0.0, value))
        parts.append(f'<path d="M{x} {y}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(_text(x - 6, y + 4, f"{value:.2f}", anchor="end"))
        tokens, bottom = place((right * tick / 4, low))
        parts.append(_text(tokens, bottom + 18, _short(right * tick / 4)))
    parts.append(_text(WIDTH / 2, HEIGHT - 12, "tokens"))
    return [*parts, _text(MARGIN, MARGIN - 16, "loss, nats")]


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _line(points: Points, colour: str) -> list[str]:
    if len(points) < 2:
        return []
    # Two points a pixel are enough.
    step = max(1, len(points) // (2 * WIDTH))
    kept = [*points[:-1:step], points[-1]]
    path = " ".join(f"{x},{y}" for x, y in kept)
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>']


def _text(x: float, y: float, text: str, *, anchor: str = "middle", fill: str = "#333") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{text}</text>'


def _svg(parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"
