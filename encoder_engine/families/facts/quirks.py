"""Reads config.json keys of blocks that few families have: sharing, windows, convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.facts.paths import OneKey, fact, with_attention, with_fact
from encoder_engine.families.facts.spec import ConvolutionSpec
from encoder_engine.families.facts.values import ACTIVATIONS, activation

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import Activation, EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = [
    "FeedForwardName",
    "FirstConvolution",
    "LayerWindows",
    "OwnCode",
    "SharedGroups",
    "StatedValue",
    "TwoThirds",
]


@dataclass(frozen=True)
class SharedGroups(OneKey):
    """Reads how many blocks there are (``num_hidden_groups``); each computes a run of layers."""

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with one block for each group."""
        layers, groups = len(spec.blocks), config.get(self.key).positive()
        if groups > layers:
            raise ConfigError(f"{self.key}={groups}, but there are {layers} layers to share")
        order = tuple(int(layer / (layers / groups)) for layer in range(layers))
        return replace(spec, blocks=spec.blocks[:groups], order=order)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the number of groups."""
        return {self.key: len(spec.blocks)}


@dataclass(frozen=True)
class TwoThirds(OneKey):
    """Reads the width of a gated feed-forward layer: 2/3 of the key's value, rounded up.

    ``multiple``: the width is rounded up to a multiple of this number. The gated layer then has
    about as many weights as an ungated layer whose width is the key's value.
    """

    multiple: int

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with the width of every feed-forward layer set."""
        least = 2 * config.get(self.key).positive() // 3
        width = -(-least // self.multiple) * self.multiple
        return with_fact(spec, "blocks.feed_forward.width", max(width, self.multiple))

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key with a value that gives the layer's width: 3/2 of it."""
        return {self.key: -(-3 * fact(spec, "blocks.feed_forward.width") // 2)}


@dataclass(frozen=True)
class LayerWindows(OneKey):
    """Reads attention windows from a config.json key: one number, or a list with one per block.

    A number counts the tokens of both sides together.
    """

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with each block's window set."""
        listed = config.get(self.key)
        several = isinstance(listed.value, list)
        windows = listed.items() if several else [listed] * len(spec.blocks)
        if len(windows) != len(spec.blocks):
            raise ConfigError(
                f"{self.key} lists {len(windows)} windows for {len(spec.blocks)} layers"
            )
        for window in windows:
            if window.positive() % 2:
                raise window.must_be("even")
        blocks = (
            with_attention(block, window=window.value // 2)
            for block, window in zip(spec.blocks, windows, strict=True)
        )
        return replace(spec, blocks=tuple(blocks))

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the windows, as a list with one for each block."""
        return {self.key: [2 * (block.attention.window or 0) for block in spec.blocks]}


@dataclass(frozen=True)
class FirstConvolution:
    """Reads the convolution of the embeddings that is added to the first block's output, if any."""

    keys: ClassVar[tuple[str, ...]] = ("conv_kernel_size", "conv_act")

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with the convolution set."""
        if config.get("conv_kernel_size").value in (None, 0):
            return spec
        activation = config.object().get("conv_act", "tanh")
        if activation not in ("gelu", "tanh"):
            raise UnsupportedFeatureError(
                f"conv_act={activation!r} is not supported; supported: 'gelu', 'tanh'"
            )
        convolution = ConvolutionSpec(
            kernel_size=config.get("conv_kernel_size").positive(),
            activation=activation,
            norm=spec.blocks[0].norm,
            dropout=spec.blocks[0].attention.output_dropout,
        )
        return replace(spec, convolution=convolution)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the convolution's kernel size and activation."""
        convolution = spec.convolution
        if convolution is None:
            return {}
        return {"conv_kernel_size": convolution.kernel_size, "conv_act": convolution.activation}


@dataclass(frozen=True)
class FeedForwardName:
    """Reads activation and gate of the feed-forward layers from a single name in config.json.

    ``names``: pairs of a name and its (activation, gated). A config.json may also have
    ``activation_key`` and ``gate_key``; transformers then uses these two and ignores the name.
    """

    key: str
    names: tuple[tuple[str, tuple[Activation, bool]], ...]
    activation_key: str
    gate_key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads."""
        return (self.key, self.activation_key, self.gate_key)

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with activation and gate of every feed-forward layer set."""
        known = dict(self.names)
        chosen = config.object().get(self.key, self.names[0][0])
        if not isinstance(chosen, str) or chosen not in known:
            raise UnsupportedFeatureError(
                f"{self.key}={chosen!r} is not supported; supported: {', '.join(known)}"
            )
        named, gate = known[chosen]
        function = activation(config.get(self.activation_key), default=named)
        gated = config.get(self.gate_key).boolean(gate)
        layer = replace(spec.blocks[0].feed_forward, activation=function, gated=gated)
        return with_fact(spec, "blocks.feed_forward", layer)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the name, or if none fits, of activation and gate."""
        layer = spec.blocks[0].feed_forward
        named = [name for name, is_ in self.names if is_ == (layer.activation, layer.gated)]
        if named:
            return {self.key: named[0]}
        function = ACTIVATIONS[layer.activation][0]
        return {self.activation_key: function, self.gate_key: layer.gated}


@dataclass(frozen=True)
class OwnCode:
    """Writes the ``auto_map`` by which alone a family is told from another; sets no field.

    ``auto_map`` names the repository's code.
    """

    auto_map: tuple[tuple[str, str], ...]

    keys: ClassVar[tuple[str, ...]] = ("auto_map",)

    def read(self, spec: EncoderSpec, _config: JsonValue) -> EncoderSpec:
        """Return the spec unchanged: the code was checked when the family was recognised."""
        return spec

    def write(self, _spec: EncoderSpec) -> dict[str, Any]:
        """Return the ``auto_map`` that names the family's code."""
        return {"auto_map": dict(self.auto_map)}


@dataclass(frozen=True)
class StatedValue(OneKey):
    """Accepts only the value ``supported`` of a config.json key, which must therefore be stated.

    ``missing``: the value that an absent key stands for; it is not supported.
    """

    missing: str
    supported: str

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return ``spec`` unchanged; raise :class:`UnsupportedFeatureError` for another value."""
        stated = config.get(self.key)
        if stated.value != self.supported:
            came = repr(stated.value if stated.present else self.missing)
            where = "" if stated.present else ", for the key is missing,"
            raise UnsupportedFeatureError(
                f"{self.key}={came}{where} is not supported; supported: {self.supported!r}"
            )
        return spec

    def write(self, _spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key with the supported value."""
        return {self.key: self.supported}
