"""The names of pooling modes, as in sentence-transformers, and pooling by several modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from encoder_engine.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["POOLING_MODES", "PoolingMode", "check_mode", "pool_modes"]

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)
# A tensor or a NumPy array, float32.
Array = TypeVar("Array", bound=Any)


def check_mode(mode: str) -> None:
    """Raise :class:`UnknownNameError` for an unknown pooling mode."""
    if mode not in POOLING_MODES:
        raise UnknownNameError(f"no pooling mode {mode!r}; there are {', '.join(POOLING_MODES)}")


def pool_modes(
    reduce: Callable[[PoolingMode], Array],
    modes: tuple[PoolingMode, ...],
    lengths_B1: Array,
    num_prompt_tokens: int,
) -> list[Array]:
    """Return the pooled vectors ``reduce(mode)`` of each mode, [B, D].

    ``num_prompt_tokens``: the rows of a prompt that ``reduce`` left out. Vectors of
    ``weightedmean`` are then corrected: row i has the weight i + 1, counted from the start of the
    prompt. ``lengths_B1``: rows of each sequence without its prompt, [B, 1].
    """
    parts = [reduce(mode) for mode in modes]
    if num_prompt_tokens and "weightedmean" in modes:
        mean_BD = reduce("mean")
        for index, mode in enumerate(modes):
            if mode == "weightedmean":
                parts[index] = _shift(parts[index], mean_BD, lengths_B1, num_prompt_tokens)
    return parts


def _shift(weighted_BD: Array, mean_BD: Array, lengths_B1: Array, shift: int) -> Array:
    """Return a weighted mean of n rows with the weights 1 + shift to n + shift.

    ``weighted_BD``: the mean with the weights 1 to n; ``mean_BD``: with equal weights.
    ``sum((i + shift) x_i) = S * weighted + shift * n * mean`` with ``S = n (n + 1) / 2``.
    """
    total = lengths_B1 * (lengths_B1 + 1) / 2
    moved = shift * lengths_B1
    shifted_BD: Array = (weighted_BD * total + mean_BD * moved) / (total + moved)
    return shifted_BD
