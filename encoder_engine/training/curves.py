"""Draws a run's losses as an SVG file, from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.pages import drawings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["draw_losses"]

SMOOTHED = 0.9
# Two points a pixel of an axis are enough.
MOST_POINTS = 1440
# An SVG file states these itself; within an HTML page, the page does.
HEAD = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
WHITE = '<rect width="100%" height="100%" fill="white"/>'
Points = list[tuple[float, float]]


def draw_losses(records: Sequence[dict[str, Any]]) -> str:
    """Draw the smoothed training loss and the held-out loss against tokens; return an SVG.

    ``records``: the lines of ``log.jsonl``.
    """
    training = _smoothed([(r["tokens"], r["loss"]) for r in records if "loss" in r])
    evaluations = [(r["tokens"], r["evaluation"]) for r in records if "evaluation" in r]
    held_out = [(x, scores["mlm_loss"]) for x, scores in evaluations if "mlm_loss" in scores]
    step = max(1, len(training) // MOST_POINTS)
    curves = {"training": [*training[:-1:step], *training[-1:]], "held out": held_out}
    drawn = drawings.draw_curves(curves, "tokens", "loss, nats")
    return drawn.replace("<svg ", HEAD, 1).replace("\n", f"\n{WHITE}\n", 1) + "\n"


def _smoothed(points: Points) -> Points:
    smooth, mean, weight = [], 0.0, 0.0
    for x, y in points:
        mean, weight = SMOOTHED * mean + (1 - SMOOTHED) * y, SMOOTHED * weight + (1 - SMOOTHED)
        smooth.append((x, mean / weight))
    return smooth
