"""What a family's config.json says in a way of its own, each to be read and to be written."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.models.spec import RelativeBiasSpec, RotarySpec
from encoder_engine.models.values import integer, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.models.spec import Activation, BlockSpec, EncoderSpec

__all__ = [
    "AlibiSlopes",
    "FeedForwardName",
    "LayerTypes",
    "LayerWindows",
    "Quirk",
    "RelativeBuckets",
    "RopeParameters",
    "RopeTheta",
    "RotaryBase",
    "SharedGroups",
    "fact",
    "with_fact",
]

Value = TypeVar("Value")


class Quirk(Protocol):
    """Reads keys of a configuration into a spec that holds all the plainer facts, and back."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads; what was there goes when it writes."""

    def read(self, spec: EncoderSpec, config: Mapping[str, Any], /) -> EncoderSpec:
        """Return the spec with the facts the keys state."""

    def write(self, spec: EncoderSpec, /) -> dict[str, Any]:
        """Return the keys that state the spec's facts."""


def with_fact(value: Value, path: str, new: object) -> Value:
    """Replace the fact a dotted path names, in every block and wherever there is one."""
    if isinstance(value, tuple):
        return type(value)(with_fact(item, path, new) for item in value)
    if not is_dataclass(value):
        return value
    name, _, rest = path.partition(".")
    assert name in {field.name for field in fields(value)}, f"{type(value).__name__} has no {name}"
    inner = with_fact(getattr(value, name), rest, new) if rest else new
    return replace(value, **{name: inner})  # type: ignore[type-var]


def fact(value: object, path: str) -> Any:
    """Return the fact a dotted path names, of the first block; None where there is none."""
    for name in path.split("."):
        if isinstance(value, tuple):
            value = value[0] if value else None
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _with_attention(block: BlockSpec, **changes: Any) -> BlockSpec:
    return replace(block, attention=replace(block.attention, **changes))


@dataclass(frozen=True)
class SharedGroups:
    """Layers of a group are one block: ``num_hidden_groups`` of them share the layers evenly."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return (self.key,)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Keep one block of each group."""
        layers, groups = len(spec.blocks), integer(config, self.key)
        if groups > layers:
            raise ConfigError(f"{self.key}={groups}, but there are {layers} layers to share")
        order = tuple(int(layer / (layers / groups)) for layer in range(layers))
        return replace(spec, blocks=spec.blocks[:groups], order=order)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Count the groups."""
        return {self.key: len(spec.blocks)}


@dataclass(frozen=True)
class RelativeBuckets:
    """A bias by buckets of distances; without a key, ``max_distance`` is the family's own."""

    num_buckets: str
    max_distance: str | None = None
    family_max_distance: int = 128

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return tuple(key for key in (self.num_buckets, self.max_distance) if key is not None)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give the spec its relative bias."""
        distance = self.family_max_distance
        if self.max_distance is not None and self.max_distance in config:
            distance = integer(config, self.max_distance)
        bias = RelativeBiasSpec(
            num_buckets=integer(config, self.num_buckets), max_distance=distance
        )
        return replace(spec, relative_bias=bias)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Say how many buckets there are, and how far they reach."""
        bias = spec.relative_bias
        if bias is None:
            return {}
        said: dict[str | None, Any] = {
            self.num_buckets: bias.num_buckets,
            self.max_distance: bias.max_distance,
        }
        return {key: value for key, value in said.items() if key is not None}


@dataclass(frozen=True)
class RopeParameters:
    """Every block turns alike, by the base that ``rope_parameters`` names."""

    default_base: float

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return ("rope_parameters",)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give every block its rotary."""
        rotary = _read_rotary(config.get("rope_parameters"), self.default_base)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Say the base."""
        rotary = fact(spec, "blocks.attention.rotary")
        return {} if rotary is None else {"rope_parameters": _write_rotary(rotary)}


@dataclass(frozen=True)
class RotaryBase:
    """Every block turns alike, by the base that one key names."""

    key: str
    default_base: float

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return (self.key,)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give every block its rotary."""
        rotary = RotarySpec(base=number(config, self.key, default=self.default_base))
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Say the base."""
        return {self.key: fact(spec, "blocks.attention.rotary.base")}


@dataclass(frozen=True)
class RopeTheta:
    """Every block turns alike, by the base ``rope_theta``, stretched as ``rope_scaling`` says."""

    default_base: float

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return ("rope_theta", "rope_scaling")

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give every block its rotary."""
        base = number(config, "rope_theta", default=self.default_base)
        scaling = config.get("rope_scaling")
        stretch = 1.0
        if scaling is not None:
            known = isinstance(scaling, dict) and scaling.keys() <= {"type", "factor", "mixed_b"}
            if not known or scaling.get("type") != "ntk" or scaling.get("mixed_b") is not None:
                raise UnsupportedFeatureError(
                    f"rope_scaling={scaling!r} is not supported; supported: a factor of type 'ntk'"
                )
            stretch = number(scaling, "factor", default=1.0)
        rotary = RotarySpec(base=base, stretch=stretch)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Say the base, and what stretches it."""
        rotary = fact(spec, "blocks.attention.rotary")
        if rotary is None:
            return {}
        scaling = None if rotary.stretch == 1.0 else {"type": "ntk", "factor": rotary.stretch}
        return {"rope_theta": rotary.base, "rope_scaling": scaling}


def _read_rotary(said: object, default_base: float) -> RotarySpec:
    said = {} if said is None else said
    if not isinstance(said, dict):
        raise ConfigError(f"rope_parameters must be an object, got {said!r}")
    kind = said.get("rope_type", "default")
    if kind != "default":
        raise UnsupportedFeatureError(f"rope_type={kind!r} is not supported; supported: 'default'")
    return RotarySpec(base=number(said, "rope_theta", default=default_base))


def _write_rotary(rotary: RotarySpec) -> dict[str, Any]:
    return {"rope_theta": rotary.base, "rope_type": "default"}


FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class LayerTypes:
    """Some blocks see all and others a window, turning by different bases; the first is not normed.

    Older files say ``global_attn_every_n_layers`` for ``layer_types``, and name the bases singly.
    """

    full_base: float = 160_000.0
    sliding_base: float = 10_000.0
    window: int = 128

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return (
            "layer_types",
            "global_attn_every_n_layers",
            "local_attention",
            "rope_parameters",
            "global_rope_theta",
            "local_rope_theta",
        )

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give each block its window, its rotary and, but for the first, its norm."""
        kinds = self._kinds(config, len(spec.blocks))
        turns = self._rotaries(config)
        told = {"local_attention": self.window} | dict(config)
        window = integer(told, "local_attention") // 2
        blocks = []
        for place, (block, kind) in enumerate(zip(spec.blocks, kinds, strict=True)):
            made = _with_attention(
                block, rotary=turns[kind], window=window if kind == SLIDING else None
            )
            blocks.append(replace(made, attention_norm=place > 0))
        return replace(spec, blocks=tuple(blocks))

    def _kinds(self, config: Mapping[str, Any], num_layers: int) -> list[str]:
        kinds = config.get("layer_types")
        if kinds is None:
            every = integer({"global_attn_every_n_layers": 3} | dict(config), self.keys[1])
            return [SLIDING if layer % every else FULL for layer in range(num_layers)]
        if not isinstance(kinds, list) or any(kind not in (FULL, SLIDING) for kind in kinds):
            raise ConfigError(f"layer_types must list {FULL} and {SLIDING}, got {kinds!r}")
        if len(kinds) != num_layers:
            raise ConfigError(f"layer_types lists {len(kinds)} layers, there are {num_layers}")
        return kinds

    def _rotaries(self, config: Mapping[str, Any]) -> dict[str, RotarySpec]:
        full = number(config, "global_rope_theta", default=self.full_base)
        sliding = self.sliding_base
        if "local_rope_theta" in config:
            said = config["local_rope_theta"]
            sliding = full if said is None else number(config, "local_rope_theta", default=0.0)
        told = config.get("rope_parameters") or {}
        if not isinstance(told, dict):
            raise ConfigError(f"rope_parameters must be an object, got {told!r}")
        return {
            FULL: _read_rotary(told.get(FULL), full),
            SLIDING: _read_rotary(told.get(SLIDING), sliding),
        }

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """List the layers' kinds."""
        kinds = [FULL if b.attention.window is None else SLIDING for b in spec.blocks]
        turns = {FULL: RotarySpec(base=self.full_base), SLIDING: RotarySpec(base=self.sliding_base)}
        windows = [b.attention.window for b in spec.blocks if b.attention.window is not None]
        for kind, block in zip(kinds, spec.blocks, strict=True):
            turns[kind] = block.attention.rotary or turns[kind]
        return {
            "layer_types": kinds,
            "local_attention": 2 * windows[0] if windows else self.window,
            "rope_parameters": {kind: _write_rotary(turn) for kind, turn in turns.items()},
        }


@dataclass(frozen=True)
class LayerWindows:
    """Every block has a window, of which the key gives both sides together: a number or a list."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads."""
        return (self.key,)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give each block its window."""
        said = config.get(self.key)
        windows = said if isinstance(said, list) else [said] * len(spec.blocks)
        if len(windows) != len(spec.blocks):
            raise ConfigError(
                f"{self.key} lists {len(windows)} windows for {len(spec.blocks)} layers"
            )
        for window in windows:
            if integer({self.key: window}, self.key) % 2:
                raise ConfigError(f"{self.key} must be even, got {window}")
        blocks = (
            _with_attention(b, window=w // 2) for b, w in zip(spec.blocks, windows, strict=True)
        )
        return replace(spec, blocks=tuple(blocks))

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """List the windows."""
        return {self.key: [2 * (block.attention.window or 0) for block in spec.blocks]}


@dataclass(frozen=True)
class FeedForwardName:
    """One name for activation and gate: ``names`` maps it to both."""

    key: str
    names: tuple[tuple[str, tuple[Activation, bool]], ...]
    derived: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the keys it reads, and those that follow from them."""
        return (self.key, *self.derived)

    def read(self, spec: EncoderSpec, config: Mapping[str, Any]) -> EncoderSpec:
        """Give every feed-forward layer its activation."""
        known = dict(self.names)
        said = config.get(self.key, self.names[0][0])
        if said not in known:
            raise UnsupportedFeatureError(
                f"{self.key}={said!r} is not supported; supported: {', '.join(known)}"
            )
        activation, gated = known[said]
        spec = with_fact(spec, "blocks.feed_forward.activation", activation)
        return with_fact(spec, "blocks.feed_forward.gated", gated)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Name the activation."""
        layer = spec.blocks[0].feed_forward
        said = [name for name, is_ in self.names if is_ == (layer.activation, layer.gated)]
        return {self.key: said[0]} if said else {}


@dataclass(frozen=True)
class AlibiSlopes:
    """The heads' slopes follow from how many there are (Press et al. 2022)."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Name no key: nothing is said."""
        return ()

    def read(self, spec: EncoderSpec, _config: Mapping[str, Any]) -> EncoderSpec:
        """Give every block its slopes."""
        slopes = _slopes(spec.num_heads)
        return with_fact(spec, "blocks.attention.alibi_slopes", slopes)

    def write(self, _spec: EncoderSpec) -> dict[str, Any]:
        """Say nothing."""
        return {}


def _slopes(num_heads: int) -> tuple[float, ...]:
    """Return a geometric sequence; for no power of two, more from between the next one's."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return tuple(slopes + between[: num_heads - power])
