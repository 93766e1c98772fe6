"""Reads config.json keys of distance terms: relative bias, ALiBi, disentangled attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.facts.paths import fact, with_fact
from encoder_engine.families.facts.spec import DistanceVectorsSpec, RelativeBiasSpec

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["AlibiSlopes", "DisentangledAttention", "RelativeBuckets"]


@dataclass(frozen=True)
class RelativeBuckets:
    """Reads a relative bias, which is learned for each bucket of distances.

    ``num_buckets``, ``max_distance``: the config.json keys of the number of buckets and of the
    largest distance; None: there is no such key. ``family_max_distance``: the largest distance if
    config.json does not state one. ``by_block``: each block has a table of its own (umT5).
    """

    num_buckets: str
    max_distance: str | None = None
    family_max_distance: int = 128
    by_block: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads."""
        return tuple(key for key in (self.num_buckets, self.max_distance) if key is not None)

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with its relative bias set."""
        distance = self.family_max_distance
        if self.max_distance is not None:
            distance = config.get(self.max_distance).positive(distance)
        bias = RelativeBiasSpec(
            num_buckets=config.get(self.num_buckets).positive(), max_distance=distance
        )
        if self.by_block:
            return with_fact(spec, "blocks.attention.relative_bias", bias)
        return replace(spec, relative_bias=bias)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the number of buckets and the largest distance."""
        bias = fact(spec, "blocks.attention.relative_bias") or spec.relative_bias
        if bias is None:
            return {}
        keys: dict[str | None, Any] = {
            self.num_buckets: bias.num_buckets,
            self.max_distance: bias.max_distance,
        }
        return {key: value for key, value in keys.items() if key is not None}


@dataclass(frozen=True)
class AlibiSlopes:
    """Sets ALiBi slopes by the number of heads (Press et al. 2022); reads no config.json key."""

    keys: ClassVar[tuple[str, ...]] = ()

    def read(self, spec: EncoderSpec, _config: JsonValue) -> EncoderSpec:
        """Return the specification with every block's ALiBi slopes set."""
        slopes = _slopes(spec.num_heads)
        return with_fact(spec, "blocks.attention.alibi_slopes", slopes)

    def write(self, _spec: EncoderSpec) -> dict[str, Any]:
        """Return no config.json keys: the slopes follow from the number of heads."""
        return {}


def _slopes(num_heads: int) -> tuple[float, ...]:
    """Return the ALiBi slope of each head, also where the heads are no power of two."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4.0 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return tuple(slopes + between[: num_heads - power])


SHARED = "share_att_key"
# Keys with (their value where missing, the supported value).
REQUIRED_VALUES = {
    "relative_attention": (False, True),
    SHARED: (False, True),
    "position_biased_input": (True, False),
}
# The names of content-to-position and position-to-content terms in pos_att_type.
POSITION_TERMS = {"c2p": "query", "p2c": "key"}


@dataclass(frozen=True)
class DisentangledAttention:
    """Reads disentangled attention, with the terms that ``pos_att_type`` lists.

    The scale of the scores is ``((1 + number of terms) * head_dim) ** -0.5``.
    ``own_projections``: distance vectors have projections of their own, and neither buckets nor a
    norm (DeBERTa v1).
    """

    own_projections: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads."""
        of_vectors = () if self.own_projections else ("position_buckets", "norm_rel_ebd")
        names = ("pos_att_type", "max_relative_positions", "embedding_size")
        return (*names, *of_vectors, *self._required)

    @property
    def _required(self) -> dict[str, tuple[bool, bool]]:
        gone = {SHARED} if self.own_projections else set()
        return {key: values for key, values in REQUIRED_VALUES.items() if key not in gone}

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the spec with distance vectors, and every block's terms and scale, set."""
        stated_terms = config.get("pos_att_type").value
        listed = stated_terms or []
        if isinstance(listed, str):
            listed = [part.strip() for part in listed.lower().split("|")]
        known = isinstance(listed, list) and all(term in [*POSITION_TERMS] for term in listed)
        if not listed or not known:
            raise UnsupportedFeatureError(
                f"pos_att_type={stated_terms!r} is not supported; supported: one or "
                f"both of {', '.join(POSITION_TERMS)}"
            )
        embedding_size = config.object().get("embedding_size", spec.width)
        if embedding_size != spec.width:
            raise UnsupportedFeatureError(
                f"{embedding_size=} beside hidden_size={spec.width} is "
                "not supported: embeddings must be as wide as the encoder"
            )
        for key, (missing, wanted) in self._required.items():
            stated = config.object().get(key, missing)
            if stated != wanted:
                raise UnsupportedFeatureError(
                    f"{key}={stated!r} is not supported; supported: {wanted}"
                )
        # In the order query, key, however they are listed.
        terms = tuple(who for name, who in POSITION_TERMS.items() if name in listed)
        scale = (spec.blocks[0].attention.head_dim * (1 + len(terms))) ** -0.5
        spec = replace(spec, distance_vectors=self._vectors(spec, config))
        spec = with_fact(spec, "blocks.attention.disentangled", terms)
        return with_fact(spec, "blocks.attention.scale", scale)

    def _vectors(self, spec: EncoderSpec, config: JsonValue) -> DistanceVectorsSpec:
        buckets, reach = config.get("position_buckets"), config.get("max_relative_positions")
        if not reach.present or (isinstance(reach.value, int) and reach.value < 1):
            # Without a value: the maximum length of texts.
            reach = replace(reach, value=spec.position_limit, present=True)
        dropout = fact(spec, "blocks.attention.output_dropout")
        if self.own_projections:
            return DistanceVectorsSpec(
                num_buckets=None, max_distance=reach.positive(), dropout=dropout
            )
        norm = config.object().get("norm_rel_ebd", "none")
        norms = [part.strip() for part in str(norm).split("|")]
        if norms not in (["none"], ["layer_norm"]):
            raise UnsupportedFeatureError(
                f"norm_rel_ebd={norm!r} is not supported; supported: 'none', 'layer_norm'"
            )
        without = not buckets.present or (isinstance(buckets.value, int) and buckets.value < 1)
        return DistanceVectorsSpec(
            num_buckets=None if without else buckets.positive(),
            max_distance=reach.positive(),
            norm=spec.blocks[0].norm if norms == ["layer_norm"] else None,
            dropout=dropout,
        )

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of the terms and of the number of distance vectors."""
        vectors = spec.distance_vectors
        terms = fact(spec, "blocks.attention.disentangled")
        if vectors is None or terms is None:
            return {}
        written: dict[str, Any] = {
            "pos_att_type": [name for name, who in POSITION_TERMS.items() if who in terms],
            "position_buckets": -1 if vectors.num_buckets is None else vectors.num_buckets,
            "max_relative_positions": vectors.max_distance,
            "norm_rel_ebd": "none" if vectors.norm is None else "layer_norm",
            **{key: wanted for key, (_, wanted) in self._required.items()},
        }
        return {key: value for key, value in written.items() if key in self.keys}
