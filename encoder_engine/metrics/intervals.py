"""Confidence intervals over seeds, bootstraps over rows, and paired randomisation tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.metrics.pairing import paired_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]

__all__ = ["Interval", "bootstrap", "paired_randomisation", "seed_interval"]


class Interval(NamedTuple):
    """A score with its confidence interval from ``low`` to ``high``.

    ``mean``: the mean over seeds or, of a bootstrap, the score of all rows.
    ``deviation``: the standard deviation of the scores of seeds or of resampled rows.
    """

    mean: float
    low: float
    high: float
    deviation: float


def seed_interval(scores: Sequence[float], *, level: float = 0.95) -> Interval:
    """Return mean, sample standard deviation and Student's t interval of scores of several seeds.

    Raises :class:`InputError` for fewer than two scores, and :class:`MissingDependencyError`
    without scipy.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(f"an interval needs the scores of at least two seeds, got {len(values)}")
    try:
        from scipy.stats import t
    except ImportError:
        raise MissingDependencyError(
            "an interval over seeds", library="scipy", extra="finetune"
        ) from None
    deviation = float(values.std(ddof=1))
    half = float(t.ppf(0.5 + level / 2.0, len(values) - 1)) * deviation / np.sqrt(len(values))
    mean = float(values.mean())
    return Interval(mean, mean - half, mean + half, deviation)


def bootstrap(
    score: Callable[[Rows], float],
    num_rows: int,
    *,
    groups: npt.ArrayLike | None = None,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Return the percentile interval of a score over resampled rows (Efron 1979).

    score: a function from row numbers, int64 [any], with repeats, to the score of these rows.
    groups: [num_rows], rows of one group are resampled together (questions of one article); None:
    each row alone.

    Samples whose score is NaN, such as the correlation of equal rows, are left out; with fewer than
    two remaining samples, the interval is NaN.

    Raises :class:`InputError` for no row, and if not every row has a group.
    """
    inverse = _group_numbers(groups, num_rows)
    order = np.argsort(inverse, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(inverse))[:-1])
    generator = np.random.default_rng(seed)
    found = np.array(
        [
            score(
                np.concatenate(
                    [members[n] for n in generator.integers(len(members), size=len(members))]
                )
            )
            for _ in range(samples)
        ]
    )
    whole = float(score(np.arange(num_rows)))
    found = found[~np.isnan(found)]
    if len(found) < 2:
        return Interval(whole, np.nan, np.nan, np.nan)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return Interval(whole, float(low), float(high), float(found.std(ddof=1)))


def paired_randomisation(
    one: npt.ArrayLike,
    other: npt.ArrayLike,
    *,
    groups: npt.ArrayLike | None = None,
    samples: int = 10_000,
    seed: int = 0,
) -> float:
    """Return the p-value of the difference between two systems' mean row scores [N] (Noreen 1989).

    Each row's two scores are swapped at random; the p-value is the share of permutations, the
    observed one included, whose absolute difference of means is at least the observed one.

    groups: [N], the scores of one group are swapped together, because its rows depend on each other
    (the rows of one query, the questions of one article); None: each row alone.

    Raises :class:`InputError` for unequal lengths, also of groups, no row, and a score that is not
    finite.
    """
    left, right = paired_scores(one, other)
    gaps = np.bincount(_group_numbers(groups, len(left)), weights=left - right)
    observed = abs(gaps.sum())
    generator = np.random.default_rng(seed)
    # Sums that are equal but for the order of addition count as equal.
    slack = 1e-12 * np.abs(gaps).sum()
    extreme = 0
    for _ in range(samples):
        signs = generator.integers(2, size=len(gaps)) * 2 - 1
        extreme += abs(signs @ gaps) >= observed - slack
    return (extreme + 1) / (samples + 1)


def _group_numbers(groups: npt.ArrayLike | None, num_rows: int) -> Rows:
    """Return each row's group number, from 0; None: each row is its own group."""
    names = np.arange(num_rows) if groups is None else np.asarray(groups)
    if num_rows < 1 or len(names) != num_rows:
        raise InputError(
            f"there are {num_rows} rows and {len(names)} groups; give one group per row"
        )
    numbers: Rows = np.unique(names, return_inverse=True)[1]
    return numbers
