"""Subword regularization: random segmentations of a text instead of the most probable one."""

from __future__ import annotations

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.text.arguments import to_integer

__all__ = ["MOST_PATHS", "UnigramSampling", "check_count"]

MOST_PATHS = 1024
# Scores are some tens a word: beyond this only the best segmentation has a chance.
MOST_ALPHA = 1e6


@dataclass(frozen=True)
class UnigramSampling:
    """Subword regularization (Kudo, 2018): random segmentations, for training.

    The probability of a segmentation is proportional to ``exp(alpha * score)``; the score is the
    sum of its pieces' log probabilities. A draw depends on the seed and the text's index in its
    batch, not on threads or truncation: use another seed for every batch. Raises
    :class:`InputError` for a value out of range.
    """

    alpha: float
    """0 makes all segmentations alike; the greater, the more often the best is drawn."""

    nbest: int | None = None
    """Draw among the best so many segmentations of a text; ``None`` draws among all of them, which
    reads no more of a text than its row needs."""

    seed: int = 0
    """From 0 to 2^64 - 1."""

    def __post_init__(self) -> None:
        alpha: object = self.alpha
        if isinstance(alpha, bool) or not isinstance(alpha, int | float):
            raise InputError(f"alpha is {type(alpha).__name__} {alpha!r}, expected a number")
        if not 0 <= alpha <= MOST_ALPHA:
            raise InputError(f"alpha is {alpha}, expected at least 0 and at most {MOST_ALPHA:g}")
        if self.nbest is not None:
            check_count(self.nbest, "nbest")
        if not 0 <= to_integer(self.seed, "seed") < 2**64:
            raise InputError(f"seed is {self.seed}, expected at least 0 and less than 2^64")


def check_count(value: object, name: str) -> int:
    """Return a number of segmentations; raises :class:`InputError` unless an int from 1 to 1024."""
    number = to_integer(value, name)
    if not 1 <= number <= MOST_PATHS:
        raise InputError(f"{name} is {number}, expected at least 1 and at most {MOST_PATHS}")
    return number
