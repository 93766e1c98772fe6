"""Learning rate schedules, as functions of the step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.training.recipe import ScheduleRecipe

__all__ = ["learning_rate_factor"]


def learning_rate_factor(schedule: ScheduleRecipe, step: int, steps: int) -> float:
    """Return the learning rate of a step, counted from 0, as a share of the peak, from 0 to 1."""
    rising = schedule.warmup * steps
    if schedule.from_zero:
        # Rounded up, as TrainingArguments.get_warmup_steps does.
        rising = float(math.ceil(rising))
    if step < rising:
        return step / rising if schedule.from_zero else (step + 1) / (rising + 1)
    if schedule.name == "constant":
        return 1.0
    falling = schedule.decay * steps if schedule.name == "stable" else steps - rising
    begins = steps - falling
    if step < begins or falling <= 0:
        return 1.0
    way = (step - begins) / falling
    left = {
        "linear": 1.0 - way,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * way)),
        "stable": 1.0 - math.sqrt(way),
    }[schedule.name]
    return schedule.final + (1.0 - schedule.final) * left
