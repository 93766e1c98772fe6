"""Reads config.json keys of decoder families: causal attention, windows, and Gemma's layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.families.facts.paths import fact, with_attention, with_fact
from encoder_engine.families.facts.rotary_quirks import (
    FULL,
    SLIDING,
    names_layer_types,
    read_layer_types,
)
from encoder_engine.families.facts.scaled_rotary import read_rotary, rotary_settings, write_rotary
from encoder_engine.families.facts.spec import RotarySpec

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["CausalWindows", "GemmaLayers", "SlidingLayers"]

# Of transformers, where rope_parameters lack rope_theta and the family's class says nothing.
DEFAULT_BASE = 10_000.0


@dataclass(frozen=True)
class CausalWindows:
    """Reads the attention windows of a causal model from ``key`` of config.json.

    The key counts the tokens that a token attends to, itself included; with attention in both
    directions, those on either side.
    ``switch``: a key that says whether there are windows at all (Qwen); None: every block has a
    window unless the key is null (Mistral). ``size``: the value of ``key`` where it is absent.
    """

    switch: str | None = None
    key: str = "sliding_window"
    size: int = 4096

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads."""
        layers = () if self.switch is None else (self.switch, "layer_types", "max_window_layers")
        return (self.key, *layers)

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with each block's window set."""
        size = config.get(self.key)
        on = self.switch is None or config.get(self.switch).boolean(False)
        if not on or (size.present and size.is_null):
            return spec
        kinds = self._kinds(config, len(spec.blocks))
        window = size.positive(self.size) - int(spec.is_causal)
        blocks = (
            with_attention(block, window=window if kind == SLIDING else None)
            for block, kind in zip(spec.blocks, kinds, strict=True)
        )
        return replace(spec, blocks=tuple(blocks))

    def _kinds(self, config: JsonValue, num_layers: int) -> list[str]:
        if self.switch is None:
            return [SLIDING] * num_layers
        if not config.get("layer_types").is_null:
            return read_layer_types(config, num_layers)
        first = config.get("max_window_layers").integer(28)
        return [FULL if layer < first else SLIDING for layer in range(num_layers)]

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the window, and of the blocks that have it."""
        windows = [block.attention.window for block in spec.blocks]
        sizes = {window for window in windows if window is not None}
        size = None if not sizes else sizes.pop() + int(spec.is_causal)
        if self.switch is None:
            return {self.key: size}
        kinds = [FULL if window is None else SLIDING for window in windows]
        return {self.key: size, self.switch: size is not None, "layer_types": kinds}


@dataclass(frozen=True)
class SlidingLayers:
    """Reads which layers attend globally or in a window, bidirectionally, and their rotary bases.

    ``sliding_window``: the tokens seen on either side. Older files list a window and a base for
    each layer, in ``attention_windows`` and ``rope_theta`` (UltraBERT). The fields are the values
    of absent keys: both bases, the window, and that each layer in ``every`` attends globally.
    """

    full_base: float
    sliding_base: float = 10_000.0
    every: int = 3
    window: int = 128

    keys: ClassVar[tuple[str, ...]] = (
        "layer_types",
        "sliding_window",
        "attention_windows",
        "rope_parameters",
        "rope_theta",
    )

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with each block's window and rotary embedding set."""
        count, size = len(spec.blocks), config.get("sliding_window").positive(self.window)
        older, types = config.get("attention_windows"), config.get("layer_types")
        if not types.is_null:
            kinds = read_layer_types(config, count)
        elif not older.is_null:
            kinds = [SLIDING if window.value else FULL for window in older.items()]
        else:
            kinds = [SLIDING if (layer + 1) % self.every else FULL for layer in range(count)]
        if not older.is_null:
            size = next((w.positive() for w in older.items() if w.value), size)
        if len(kinds) != count:
            raise ConfigError(f"attention_windows lists {len(kinds)} layers, there are {count}")
        bases = {FULL: self.full_base, SLIDING: self.sliding_base}
        listed, settings = config.get("rope_theta"), config.get("rope_parameters")
        if names_layer_types(settings):
            for kind in sorted({*kinds}):
                settings.get(kind).object()
            bases = dict.fromkeys(bases, DEFAULT_BASE)
        elif isinstance(listed.value, list):
            bases |= {
                kind: base.number(least=0)
                for kind, base in zip(kinds, listed.items(), strict=False)
            }
        rotaries = _by_layer_type(spec, config, bases)
        return _with_layers(spec, kinds, size, rotaries)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of layer types, window and rotary bases."""
        kinds, size, rotaries = _layers_of(spec)
        found = {FULL: self.full_base, SLIDING: self.sliding_base}
        return {
            "layer_types": kinds,
            "sliding_window": self.window if size is None else size,
            "rope_parameters": _write_by_layer_type(rotaries, found),
        }


@dataclass(frozen=True)
class GemmaLayers:
    """Reads Gemma 3's layers: windows, direction of attention, scales of scores and embeddings.

    The window of a causal model counts the token itself; otherwise it counts both sides together.
    The fields are the values of absent keys: both rotary bases, that each layer in ``every``
    attends globally, and ``scalar``, whose root divides the scores.
    """

    full_base: float = 1_000_000.0
    sliding_base: float = 10_000.0
    every: int = 6
    scalar: int = 256

    keys: ClassVar[tuple[str, ...]] = (
        "layer_types",
        "sliding_window",
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "use_bidirectional_attention",
        "query_pre_attn_scalar",
        "rope_parameters",
        "rope_theta",
        "rope_local_base_freq",
        "rope_scaling",
    )

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the spec with each block's direction, window, rotary embedding and scale set."""
        count, size = len(spec.blocks), config.get("sliding_window").positive(4096)
        every = config.get("_sliding_window_pattern").optional(lambda value: value.positive())
        every = config.get("sliding_window_pattern").positive(every or self.every)
        if config.get("layer_types").is_null:
            kinds = [SLIDING if (layer + 1) % every else FULL for layer in range(count)]
        else:
            kinds = read_layer_types(config, count)
        both = config.get("use_bidirectional_attention")
        both_ways = not both.is_null and both.boolean()
        bases = {
            FULL: self.full_base,
            SLIDING: config.get("rope_local_base_freq").number(self.sliding_base, least=0),
        }
        rotaries = _by_layer_type(spec, config, bases)
        spec = _with_layers(spec, kinds, size // 2 if both_ways else size - 1, rotaries)
        stated = config.get("query_pre_attn_scalar")
        scalar = stated.number(self.scalar, least=0)
        if scalar == 0.0:
            raise stated.must_be("a number above 0")
        spec = with_fact(spec, "blocks.attention.scale", scalar**-0.5)
        spec = with_fact(spec, "blocks.attention.causal", not both_ways)
        return with_fact(spec, "embedding.scale", spec.width**0.5)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of layer types, window, rotary bases and score scale."""
        kinds, window, rotaries = _layers_of(spec)
        causal = fact(spec, "blocks.attention.causal")
        size = None if window is None else (window + 1 if causal else 2 * window)
        scalar = fact(spec, "blocks.attention.scale") ** -2
        found = {FULL: self.full_base, SLIDING: self.sliding_base}
        return {
            "layer_types": kinds,
            "sliding_window": 4096 if size is None else size,
            "use_bidirectional_attention": not causal,
            "query_pre_attn_scalar": round(scalar),
            "rope_parameters": _write_by_layer_type(rotaries, found),
        }


def _by_layer_type(
    spec: EncoderSpec, config: JsonValue, bases: dict[str, float]
) -> dict[str, RotarySpec]:
    """Read each layer type's rotary embedding.

    ``bases``: the default rotary base of each layer type. In files without ``rope_parameters``, the
    scaling ``rope_scaling`` is that of global layers alone.
    """
    settings = rotary_settings(config)
    longest = spec.position_limit
    if names_layer_types(config.get("rope_parameters")):
        return {
            kind: read_rotary(settings.get(kind), base, longest) for kind, base in bases.items()
        }
    theta = config.get("rope_theta")
    full = bases[FULL] if isinstance(theta.value, list) else theta.number(bases[FULL], least=0)
    return {FULL: read_rotary(settings, full, longest), SLIDING: RotarySpec(base=bases[SLIDING])}


def _write_by_layer_type(
    rotaries: dict[str, RotarySpec], bases: dict[str, float]
) -> dict[str, Any]:
    return {
        kind: write_rotary(rotaries[kind])
        if kind in rotaries
        else {"rope_type": "default", "rope_theta": base}
        for kind, base in bases.items()
    }


def _with_layers(
    spec: EncoderSpec, kinds: list[str], window: int, rotaries: dict[str, RotarySpec]
) -> EncoderSpec:
    blocks = (
        with_attention(block, rotary=rotaries[kind], window=window if kind == SLIDING else None)
        for block, kind in zip(spec.blocks, kinds, strict=True)
    )
    return replace(spec, blocks=tuple(blocks))


def _layers_of(spec: EncoderSpec) -> tuple[list[str], int | None, dict[str, RotarySpec]]:
    """Return each block's layer type, the window, and each layer type's rotary embedding."""
    kinds = [FULL if b.attention.window is None else SLIDING for b in spec.blocks]
    windows = [b.attention.window for b in spec.blocks if b.attention.window is not None]
    rotaries = {
        kind: block.attention.rotary
        for kind, block in zip(kinds, spec.blocks, strict=True)
        if block.attention.rotary is not None
    }
    return kinds, windows[0] if windows else None, rotaries
