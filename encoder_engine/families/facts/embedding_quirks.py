"""Reads config.json keys of embeddings that few families have: ESM's, offsets, scales."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.families.facts.paths import OneKey, fact, with_fact
from encoder_engine.families.facts.spec import RotarySpec

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["EsmEmbedding", "OffsetPositions", "ScaledEmbedding"]


@dataclass(frozen=True)
class EsmEmbedding:
    """Reads ESM's positions (rotary or learned), its norm of embeddings, and its token dropout."""

    keys: ClassVar[tuple[str, ...]] = (
        "position_embedding_type",
        "rope_theta",
        "emb_layer_norm_before",
        "token_dropout",
        "mask_token_id",
    )

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with the embedding, and every block's rotary embedding, set."""
        embedding = spec.embedding
        if config.get("position_embedding_type").value == "rotary":
            rotary = RotarySpec(base=config.get("rope_theta").number(10_000.0, least=0))
            spec = with_fact(spec, "blocks.attention.rotary", rotary)
        else:
            assert spec.position_limit is not None
            padding_id = config.get("pad_token_id").integer(embedding.padding_id)
            embedding = replace(
                embedding,
                num_positions=spec.position_limit,
                first_position=padding_id + 1,
                positions_skip_padding=True,
            )
            spec = replace(spec, position_limit=None)
        before = config.get("emb_layer_norm_before")
        if not before.is_null and before.boolean():
            embedding = replace(embedding, norm=spec.blocks[0].norm)
        if config.get("token_dropout").boolean(False):
            mask_id = config.get("mask_token_id").integer()
            if mask_id >= embedding.vocab_size:
                raise ConfigError(
                    f"mask_token_id={mask_id} lies outside of vocab_size={embedding.vocab_size}"
                )
            embedding = replace(embedding, mask_id=mask_id)
        return replace(spec, embedding=embedding)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json keys of positions, embedding norm and token dropout."""
        embedding, rotary = spec.embedding, fact(spec, "blocks.attention.rotary")
        written: dict[str, Any] = {
            "position_embedding_type": "absolute" if rotary is None else "rotary",
            "emb_layer_norm_before": embedding.norm is not None,
            "token_dropout": embedding.mask_id is not None,
        }
        if rotary is None:
            written["max_position_embeddings"] = embedding.num_positions
        else:
            written["rope_theta"] = rotary.base
        if embedding.mask_id is not None:
            written["mask_token_id"] = embedding.mask_id
        return written


@dataclass(frozen=True)
class OffsetPositions(OneKey):
    """Adds a position table's unused first ``offset`` rows, which config.json does not count."""

    offset: int

    def read(self, spec: EncoderSpec, _config: JsonValue) -> EncoderSpec:
        """Return the spec with the unused rows added, and positions that begin after them."""
        embedding = spec.embedding
        rows = embedding.num_positions + self.offset
        return replace(
            spec, embedding=replace(embedding, num_positions=rows, first_position=self.offset)
        )

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key of the number of positions, without the unused rows."""
        return {self.key: spec.embedding.num_positions - self.offset}


@dataclass(frozen=True)
class ScaledEmbedding(OneKey):
    """Reads whether token embeddings are multiplied by the square root of the width (BART)."""

    def read(self, spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
        """Return the specification with the scale of token embeddings set."""
        scaled = config.get(self.key).boolean(False)
        return with_fact(spec, "embedding.scale", spec.width**0.5 if scaled else 1.0)

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """Return the config.json key that says whether token embeddings are scaled."""
        return {self.key: spec.embedding.scale != 1.0}
