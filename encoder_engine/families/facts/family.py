"""A family of encoders, as data: how its checkpoints name things and what its blocks are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, FeedForwardSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.paths import Quirk

__all__ = ["DROPOUTS", "PLAIN_BLOCK", "ConfigKeys", "Family"]

# Where BERT drops out: keys of config.json, and the facts of a spec that each states.
DROPOUTS = {
    "hidden_dropout_prob": (
        "embedding.dropout",
        "blocks.attention.output_dropout",
        "blocks.feed_forward.output_dropout",
    ),
    "attention_probs_dropout_prob": ("blocks.attention.dropout",),
}


# A block of BERT's, sizes aside.
PLAIN_BLOCK = BlockSpec(
    attention=AttentionSpec(num_heads=1, head_dim=1), feed_forward=FeedForwardSpec(width=1)
)


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """What a family's config.json calls each fact; None: it has no such key."""

    width: str = "hidden_size"
    num_blocks: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
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

    ``architecture`` is the class transformers loads a saved encoder as, whose parameters are named
    as in files unless there are ``memory_renames``. ``prefix`` is what a checkpoint with a head
    puts before the encoder's tensor names, and ``heads`` are the beginnings of the heads' own,
    which ``layouts`` describe. ``copies`` are names under which a checkpoint may hold another
    tensor again.

    ``block`` is a block of the family, sizes aside, and says what a missing key means.
    ``position_table``: positions are learned; otherwise the key only limits how long a text is.
    ``segments_optional``: a member may have no table of segments.
    ``dropouts`` and ``flags`` map keys to the facts they state, as paths into the spec; ``quirks``
    state facts in ways of their own.

    ``required`` are configuration values without which the computation would be another;
    ``ignored`` are keys that say nothing about it. ``written_as`` is the model_type in config.json
    where that is another's, and ``marks`` the values that then tell the two apart. ``code`` is
    where ``auto_map`` may find the code of this family.
    """

    model_type: str
    architecture: str
    prefix: str
    renames: tuple[Rename, ...]
    padding_id: int
    pooler: bool
    block: BlockSpec = PLAIN_BLOCK
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
    layouts: tuple[HeadLayout, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    memory_renames: tuple[Rename, ...] | None = None
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    written_as: str | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()

    @property
    def config_model_type(self) -> str:
        """What config.json calls the family."""
        return self.model_type if self.written_as is None else self.written_as

    @property
    def block_prefix(self) -> str:
        """What a checkpoint calls a block, with ``{block}`` for its index."""
        theirs = next(r.theirs for r in self.renames if "{block}" in r.ours)
        first = theirs if isinstance(theirs, str) else theirs[0]
        return first[: first.index("{block}") + len("{block}")]
