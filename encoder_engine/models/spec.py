"""What an encoder is made of, as values: a family of models is data, not a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from encoder_engine.errors import ConfigError

__all__ = [
    "Activation",
    "AttentionSpec",
    "BlockSpec",
    "EmbeddingSpec",
    "EncoderSpec",
    "FeedForwardSpec",
]

Activation = Literal["gelu", "gelu_tanh"]


@dataclass(frozen=True, kw_only=True)
class EmbeddingSpec:
    """Token, position and segment tables, added and normalised.

    ``width`` may differ from the encoder's: a projection then follows. ``first_position`` is the
    table row of a sequence's first token (RoBERTa: one past the padding id). ``num_segments`` 0
    means no segment table. ``positions_skip_padding``: a padding token inside the text takes no
    position of its own but the row ``padding_id`` (RoBERTa).
    """

    vocab_size: int
    width: int
    num_positions: int
    first_position: int = 0
    positions_skip_padding: bool = False
    num_segments: int = 0
    padding_id: int | None = None
    norm_epsilon: float = 1e-12
    dropout: float = 0.0

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence the position table can place."""
        return self.num_positions - self.first_position


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Multi-head self-attention with a bias in every projection."""

    num_heads: int
    head_dim: int
    dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FeedForwardSpec:
    """Two dense layers with an activation between."""

    width: int
    activation: Activation = "gelu"


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """Attention and feed-forward, each followed by dropout, residual add and layer norm."""

    attention: AttentionSpec
    feed_forward: FeedForwardSpec
    norm_epsilon: float = 1e-12
    dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """A whole encoder. ``model_type`` names the family whose files it is read from and written as.

    ``pooler``: a dense layer and tanh on each sequence's first row. Raises :class:`ConfigError`
    for sizes that contradict each other.
    """

    model_type: str
    width: int
    embedding: EmbeddingSpec
    blocks: tuple[BlockSpec, ...]
    pooler: bool = False
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        sizes = {
            "width": self.width,
            "vocab_size": self.embedding.vocab_size,
            "embedding width": self.embedding.width,
            "longest sequence (positions after first_position)": self.embedding.max_length,
        }
        for index, block in enumerate(self.blocks):
            sizes[f"block {index} num_heads"] = block.attention.num_heads
            sizes[f"block {index} head_dim"] = block.attention.head_dim
            sizes[f"block {index} feed-forward width"] = block.feed_forward.width
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"{name} must be at least 1, got {size}")
        for index, block in enumerate(self.blocks):
            heads_width = block.attention.num_heads * block.attention.head_dim
            if heads_width != self.width:
                raise ConfigError(
                    f"block {index} has {block.attention.num_heads} heads of "
                    f"{block.attention.head_dim} = {heads_width}, the encoder is {self.width} wide"
                )

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence the encoder takes, special tokens included."""
        return self.embedding.max_length
