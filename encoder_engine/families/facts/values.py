"""Wraps the values of a config.json, and reads names of activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.facts.spec import Activation
from encoder_engine.json_values import JsonSource, JsonValue

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ACTIVATIONS", "activation", "config_values"]

# Names of activations in config.json; the first of each is written.
ACTIVATIONS: dict[Activation, tuple[str, ...]] = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate"),
    "relu": ("relu",),
    "silu": ("silu", "swish"),
}
assert set(ACTIVATIONS) == set(get_args(Activation))


def config_values(config: Mapping[str, Any]) -> JsonValue:
    """Wrap the values of a config.json, so that wrong ones raise :class:`ConfigError`."""
    return JsonValue(dict(config), JsonSource(name="config.json", error=ConfigError))


def activation(value: JsonValue, *, default: Activation) -> Activation:
    """Read the name of an activation; ``default``: that of an absent value.

    Raises :class:`UnsupportedFeatureError` for an unknown name.
    """
    name = value.value if value.present else ACTIVATIONS[default][0]
    for known, names in ACTIVATIONS.items():
        if name in names:
            return known
    supported = ", ".join(name for names in ACTIVATIONS.values() for name in names)
    raise UnsupportedFeatureError(f"{value.path}={name!r} is not supported; supported: {supported}")
