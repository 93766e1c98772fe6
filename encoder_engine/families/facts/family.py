"""A family of encoders as data: tensor names, config.json keys, and the default block."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.paths import Quirk

__all__ = ["DROPOUTS", "PLAIN_BLOCK", "ConfigKeys", "Family"]

# BERT's dropout keys of config.json, and the fields of a spec that each sets.
DROPOUTS = {
    "hidden_dropout_prob": (
        "embedding.dropout",
        "blocks.attention.output_dropout",
        "blocks.feed_forward.output_dropout",
    ),
    "attention_probs_dropout_prob": ("blocks.attention.dropout",),
}


# BERT's block, sizes aside.
PLAIN_BLOCK = BlockSpec(
    attention=AttentionSpec(num_heads=1, head_dim=1), feed_forward=FeedForwardSpec(width=1)
)


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """The name of a family's config.json key for each field; None: the family has no such key."""

    width: str = "hidden_size"
    num_blocks: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    num_key_heads: str | None = None
    head_dim: str | None = None
    feed_forward_width: str = "intermediate_size"
    num_positions: str | None = "max_position_embeddings"
    activation: str | None = "hidden_act"
    norm_epsilon: str | None = "layer_norm_eps"
    num_segments: str | None = "type_vocab_size"
    embedding_width: str | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of encoders, whose members differ only in sizes.

    ``architecture``: the class of transformers that loads a saved encoder.
    ``prefix``: what the encoder's tensor names begin with in a checkpoint with a head.
    ``renames``: the encoder's modules and their names in a checkpoint.
    ``memory_renames``: where transformers' parameters are named otherwise in memory.
    ``copies``: names under which a checkpoint may repeat another tensor.
    ``heads``: the prefixes of the heads' tensor names, which ``layouts`` describe.
    ``padding_id``: the padding token where the configuration names none; None: no padding.
    ``block``: a block of the family; its values are the defaults of keys missing in config.json,
    sizes excepted (the head size counts if it is above 1).
    ``feed_forward_factor``: the width of the feed-forward layer as a multiple of the encoder's,
    where the configuration has null.
    ``buffers``: patterns of tensors that checkpoints hold and no encoder or head computes with.
    ``position_table``: positions are learned; False: the key only limits the length of a text.
    ``segments_optional``: a member may lack the table of segments.
    ``dropouts``, ``flags``: map keys to the paths of the fields that they set in a spec.
    ``quirks``: readers of keys that need code of their own, see :class:`Quirk`.
    ``required``: values of keys that are supported; others would change the computation.
    ``ignored``: keys that do not change the computation.
    ``written_as``: the model_type in config.json where that is another family's; ``marks``: the
    values that distinguish the two.
    ``code``: the values of ``auto_map`` that name this family's model code; ``recognised_by_code``:
    a configuration without such a value is of another family.
    ``vocabulary``: the tensor name of a causal model's output layer, which a checkpoint may omit if
    the layer is tied to the token embeddings; None: not a causal model.
    ``vocabulary_tied``: the output layer is tied where config.json does not say.
    ``in_place``: transformers' own models of the family can compute with the engine (integrations).
    """

    model_type: str
    architecture: str
    prefix: str
    renames: tuple[Rename, ...]
    padding_id: int | None
    pooler: bool
    block: BlockSpec = PLAIN_BLOCK
    feed_forward_factor: int | None = None
    embedding_norm: bool = True
    embedding_projected: bool = False
    final_norm: bool = False
    position_table: bool = True
    segments_optional: bool = False
    positions_follow_padding_id: bool = False
    keys: ConfigKeys = field(default_factory=ConfigKeys)
    dropouts: Mapping[str, tuple[str, ...]] = field(default_factory=DROPOUTS.copy)
    dropout: float = 0.1
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quirks: tuple[Quirk, ...] = ()
    heads: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    layouts: tuple[HeadLayout, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    memory_renames: tuple[Rename, ...] | None = None
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    written_as: str | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    recognised_by_code: bool = False
    vocabulary: str | None = None
    vocabulary_tied: bool = True
    in_place: bool = True

    @property
    def config_model_type(self) -> str:
        """The family's ``model_type`` in config.json."""
        return self.model_type if self.written_as is None else self.written_as

    @property
    def block_prefix(self) -> str:
        """The prefix of a block's tensor names, with ``{block}`` for its index."""
        theirs = next(r.theirs for r in self.renames if "{block}" in r.ours)
        first = theirs if isinstance(theirs, str) else theirs[0]
        return first[: first.index("{block}") + len("{block}")]
