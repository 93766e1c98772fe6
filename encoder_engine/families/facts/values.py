"""Readers of configuration values that check type and range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.facts.spec import Activation

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ACTIVATIONS", "activation", "flag", "integer", "number"]

# Names of activations in config.json; the first of each is written.
ACTIVATIONS: dict[Activation, tuple[str, ...]] = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate"),
    "relu": ("relu",),
    "silu": ("silu", "swish"),
}
assert set(ACTIVATIONS) == set(get_args(Activation))
# No table or layer is larger; a damaged file may have a larger size.
LARGEST_SIZE = 2**31 - 1


def integer(config: Mapping[str, Any], key: str) -> int:
    """Read a size of at least 1; raises :class:`ConfigError` where it is missing or is none."""
    if key not in config:
        raise ConfigError(f"the configuration lacks {key!r}")
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE:
        raise ConfigError(
            f"{key} must be an integer of at least 1 and at most {LARGEST_SIZE}, got {value!r:.40}"
        )
    return value


def number(
    config: Mapping[str, Any], key: str | None, *, default: float, below_one: bool = False
) -> float:
    """Read a number of at least 0; raises :class:`ConfigError` for anything else."""
    value = default if key is None else config.get(key, default)
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0.0
    if not valid or (below_one and value >= 1.0):
        wanted = "at least 0 and below 1" if below_one else "at least 0"
        raise ConfigError(f"{key} must be a number {wanted}, got {value!r}")
    return float(value)


def flag(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read true or false; raises :class:`ConfigError` for anything else."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    return value


def activation(config: Mapping[str, Any], key: str, *, default: Activation) -> Activation:
    """Read the name of an activation; raises :class:`UnsupportedFeatureError` for another one."""
    value = config.get(key, ACTIVATIONS[default][0])
    for known, names in ACTIVATIONS.items():
        if value in names:
            return known
    supported = ", ".join(name for names in ACTIVATIONS.values() for name in names)
    raise UnsupportedFeatureError(f"{key}={value!r} is not supported; supported: {supported}")
