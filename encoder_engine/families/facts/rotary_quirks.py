"""Reads config.json keys of rotary position embeddings, by family."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.facts.paths import OneKey, fact, with_attention, with_fact
from encoder_engine.families.facts.spec import RotarySpec

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = [
    "FULL",
    "SLIDING",
    "LayerTypes",
    "PairedRotary",
    "RopeParameters",
    "RopeTheta",
    "RotaryBase",
    "names_layer_types",
    "read_layer_types",
]


@dataclass(frozen=True)
class RopeParameters:
    """Reads one rotary embedding for all blocks, with the base in ``rope_parameters``."""

    default_base: float

    keys: ClassVar[tuple[str, ...]] = ("rope_parameters",)

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with every block's rotary embedding set."""
        rotary = _read_rotary(config.get("rope_parameters"), self.default_base)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the rotary base."""
        rotary = fact(spec, "blocks.attention.rotary")
        return {} if rotary is None else {"rope_parameters": _write_rotary(rotary)}


@dataclass(frozen=True)
class RotaryBase(OneKey):
    """Reads one rotary embedding for all blocks, with the base in ``key`` of config.json."""

    default_base: float

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with every block's rotary embedding set."""
        rotary = RotarySpec(base=config.get(self.key).number(self.default_base, least=0))
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the rotary base."""
        return {self.key: fact(spec, "blocks.attention.rotary.base")}


@dataclass(frozen=True)
class PairedRotary:
    """Sets one rotary embedding for all blocks, whose pairs are neighbouring features.

    ``base``: the rotary base, which no key of config.json sets.
    ``key``: the key that says whether values are rotated, too; None: they are not.
    """

    base: float
    key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads."""
        return () if self.key is None else (self.key,)

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Set every block's rotary embedding; raises :class:`ConfigError` for an odd head size."""
        head_dim = fact(spec, "blocks.attention.head_dim")
        if head_dim % 2:
            raise ConfigError(
                f"heads of {head_dim} features have no pairs to turn; the width of all heads "
                f"({spec.width}) must be a multiple of twice their number ({spec.num_heads})"
            )
        turns_values = self.key is not None and config.get(self.key).boolean(False)
        rotary = RotarySpec(base=self.base, turns_values=turns_values, interleaved=True)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key that says whether values are rotated."""
        return dict.fromkeys(self.keys, fact(spec, "blocks.attention.rotary.turns_values"))


@dataclass(frozen=True)
class RopeTheta:
    """Reads a rotary embedding for all blocks: base ``rope_theta``, scaled by ``rope_scaling``."""

    default_base: float

    keys: ClassVar[tuple[str, ...]] = ("rope_theta", "rope_scaling")

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with every block's rotary embedding set."""
        base = config.get("rope_theta").number(self.default_base, least=0)
        scaling = config.get("rope_scaling")
        stretch = 1.0
        if not scaling.is_null:
            stated = scaling.value
            known = isinstance(stated, dict) and stated.keys() <= {"type", "factor", "mixed_b"}
            if not known or stated.get("type") != "ntk" or stated.get("mixed_b") is not None:
                raise UnsupportedFeatureError(
                    f"rope_scaling={stated!r} is not supported; supported: a factor of type 'ntk'"
                )
            stretch = scaling.get("factor").number(1.0, least=0)
        rotary = RotarySpec(base=base, stretch=stretch)
        return with_fact(spec, "blocks.attention.rotary", rotary)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the rotary base and its scaling."""
        rotary = fact(spec, "blocks.attention.rotary")
        if rotary is None:
            return {}
        scaling = None if rotary.stretch == 1.0 else {"type": "ntk", "factor": rotary.stretch}
        return {"rope_theta": rotary.base, "rope_scaling": scaling}


def _read_rotary(parameters: JsonValue, default_base: float) -> RotarySpec:
    if parameters.is_null:
        return RotarySpec(base=default_base)
    kind = parameters.object().get("rope_type", "default")
    if kind != "default":
        raise UnsupportedFeatureError(f"rope_type={kind!r} is not supported; supported: 'default'")
    return RotarySpec(base=parameters.get("rope_theta").number(default_base, least=0))


def _write_rotary(rotary: RotarySpec) -> dict[str, Any]:
    return {"rope_theta": rotary.base, "rope_type": "default"}


FULL, SLIDING = "full_attention", "sliding_attention"


def names_layer_types(settings: JsonValue) -> bool:
    """Return whether ``rope_parameters`` are given, by layer type; False if they are empty.

    Raises :class:`ConfigError` if they are given in another form.
    """
    if not settings.value:
        return False
    if not settings.object().keys() & {FULL, SLIDING}:
        raise settings.must_be(f"an object of {FULL} and {SLIDING}")
    return True


def read_layer_types(config: JsonValue, num_layers: int) -> list[str]:
    """Read ``layer_types``: :data:`FULL` (global) or :data:`SLIDING` attention for each layer.

    Raises :class:`ConfigError` for another name, or another number of layers.
    """
    listed = config.get("layer_types").items()
    kinds = [kind.one_of({FULL: FULL, SLIDING: SLIDING}) for kind in listed]
    if len(kinds) != num_layers:
        raise ConfigError(f"layer_types lists {len(kinds)} layers, there are {num_layers}")
    return kinds


@dataclass(frozen=True)
class LayerTypes:
    """Reads ModernBERT's layers: global or sliding-window attention, each with its own rotary base.

    The first block has no norm before attention. Older files have ``global_attn_every_n_layers``
    instead of ``layer_types``, and a key for each base.
    """

    full_base: float = 160_000.0
    sliding_base: float = 10_000.0
    window: int = 128

    keys: ClassVar[tuple[str, ...]] = (
        "layer_types",
        "global_attn_every_n_layers",
        "local_attention",
        "rope_parameters",
        "global_rope_theta",
        "local_rope_theta",
    )

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the spec with each block's window, rotary embedding and first norm set."""
        kinds = self._kinds(config, len(spec.blocks))
        rotaries = self._rotaries(config)
        window = config.get("local_attention").positive(self.window) // 2
        blocks = []
        for place, (block, kind) in enumerate(zip(spec.blocks, kinds, strict=True)):
            made = with_attention(
                block, rotary=rotaries[kind], window=window if kind == SLIDING else None
            )
            blocks.append(replace(made, attention_norm=place > 0))
        return replace(spec, blocks=tuple(blocks))

    def _kinds(self, config: JsonValue, num_layers: int) -> list[str]:
        listed = config.get("layer_types")
        if listed.is_null:
            every = config.get("global_attn_every_n_layers").positive(3)
            return [SLIDING if layer % every else FULL for layer in range(num_layers)]
        return read_layer_types(config, num_layers)

    def _rotaries(self, config: JsonValue) -> dict[str, RotarySpec]:
        full = config.get("global_rope_theta").number(self.full_base, least=0)
        local = config.get("local_rope_theta")
        stated_null = local.is_null and local.present
        sliding = full if stated_null else local.number(self.sliding_base, least=0)
        settings = config.get("rope_parameters")
        if not names_layer_types(settings):
            return {FULL: RotarySpec(base=full), SLIDING: RotarySpec(base=sliding)}
        return {
            FULL: _read_rotary(settings.get(FULL), full),
            SLIDING: _read_rotary(settings.get(SLIDING), sliding),
        }

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of layer types, window and rotary bases."""
        kinds = [FULL if b.attention.window is None else SLIDING for b in spec.blocks]
        rotaries = {
            FULL: RotarySpec(base=self.full_base),
            SLIDING: RotarySpec(base=self.sliding_base),
        }
        windows = [b.attention.window for b in spec.blocks if b.attention.window is not None]
        for kind, block in zip(kinds, spec.blocks, strict=True):
            rotaries[kind] = block.attention.rotary or rotaries[kind]
        return {
            "layer_types": kinds,
            "local_attention": 2 * windows[0] if windows else self.window,
            "rope_parameters": {kind: _write_rotary(rotary) for kind, rotary in rotaries.items()},
        }
