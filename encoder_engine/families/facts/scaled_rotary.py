"""Rotary embeddings with the scalings that config.json names ``rope_type``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.facts.paths import fact, with_fact
from encoder_engine.families.facts.spec import RotaryScaling, RotarySpec

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["ScaledRope", "read_rotary", "rotary_settings", "write_rotary"]

# Dynamic scaling begins beyond max_position_embeddings, the longest text that is accepted.
UNSCALED = ("default", "dynamic")
SUPPORTED = (*UNSCALED, "linear", "llama3", "yarn")


@dataclass(frozen=True)
class ScaledRope:
    """Reads one rotary embedding for all blocks from ``rope_parameters``, or from older keys.

    These are ``rope_theta``, the base, and ``rope_scaling``, the other values.
    """

    default_base: float = 10_000.0

    keys: ClassVar[tuple[str, ...]] = ("rope_parameters", "rope_theta", "rope_scaling")

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with every block's rotary embedding set."""
        base = config.get("rope_theta").number(self.default_base, least=0)
        rotary = read_rotary(rotary_settings(config), base, spec.position_limit)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the rotary base and its scaling."""
        rotary = fact(spec, "blocks.attention.rotary")
        return {} if rotary is None else {"rope_parameters": write_rotary(rotary)}


def rotary_settings(config: JsonValue) -> JsonValue:
    """Return config.json's ``rope_parameters``, or ``rope_scaling`` where the former is empty.

    Raises :class:`ConfigError` where both are stated and differ: libraries read one or the other.
    """
    settings, older = config.get("rope_parameters"), config.get("rope_scaling")
    if not settings.value:
        return older
    if older.value and older.value != settings.value:
        raise older.fail(
            f"{older.value} differs from rope_parameters, {settings.value}, which newer files have "
            "in its place; state the scaling and rope_theta in rope_parameters alone"
        )
    return settings


def read_rotary(settings: JsonValue, base: float, longest: int | None) -> RotarySpec:
    """Read a rotary embedding from ``rope_parameters``.

    ``longest``: the most tokens of a text in pretraining, if the settings do not state them.
    Raises :class:`UnsupportedFeatureError` for an unknown ``rope_type``.
    """
    if settings.is_null or not settings.value:
        return RotarySpec(base=base)
    stated = settings.object()
    kind = stated.get("rope_type", stated.get("type", "default"))
    base = settings.get("rope_theta").number(base, least=0)
    if kind not in SUPPORTED:
        raise UnsupportedFeatureError(
            f"{settings.path}: rope_type={kind!r} is not supported; supported: "
            f"{', '.join(SUPPORTED)}"
        )
    if kind in UNSCALED:
        return RotarySpec(base=base)
    factor = settings.get("factor").number(least=0)
    if kind == "linear":
        return RotarySpec(base=base, scaling=RotaryScaling(kind="linear", factor=factor))
    length = settings.get("original_max_position_embeddings").positive(longest)
    if kind == "llama3":
        scaling = RotaryScaling(
            kind="llama3",
            factor=factor,
            original_length=length,
            low=settings.get("low_freq_factor").number(least=0),
            high=settings.get("high_freq_factor").number(least=0),
        )
    else:
        scaling = RotaryScaling(
            kind="yarn",
            factor=factor,
            original_length=length,
            low=_or(settings.get("beta_slow"), 1.0),
            high=_or(settings.get("beta_fast"), 32.0),
            magnitude=_magnitude(settings, factor),
            whole=settings.get("truncate").boolean(True),
        )
    return RotarySpec(base=base, scaling=scaling)


def _or(value: JsonValue, default: float) -> float:
    return value.number(least=0) if value.value else default


def _magnitude(settings: JsonValue, factor: float) -> float:
    """Return YaRN's attention factor, stated or as its authors recommend."""
    if not settings.get("attention_factor").is_null:
        return settings.get("attention_factor").number(least=0)
    parts = [_or(settings.get(key), 0.0) for key in ("mscale", "mscale_all_dim")]
    if all(parts):
        return _recommended(factor, parts[0]) / _recommended(factor, parts[1])
    return _recommended(factor, 1.0)


def _recommended(factor: float, share: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * share * math.log(factor) + 1.0


def write_rotary(rotary: RotarySpec) -> dict[str, Any]:
    """Return ``rope_parameters`` from which :func:`read_rotary` reads ``rotary``."""
    scaling = rotary.scaling
    if scaling is None:
        return {"rope_theta": rotary.base, "rope_type": "default"}
    written = {"rope_theta": rotary.base, "rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "linear":
        return written
    written["original_max_position_embeddings"] = scaling.original_length
    if scaling.kind == "llama3":
        return written | {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    return written | {
        "beta_slow": scaling.low,
        "beta_fast": scaling.high,
        "attention_factor": scaling.magnitude,
        "truncate": scaling.whole,
    }
