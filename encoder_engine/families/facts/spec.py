"""The specification of an encoder, as frozen values. A family of models is data, not a class."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MASKED_IN_TRAINING",
    "Activation",
    "AttentionSpec",
    "BlockSpec",
    "ConvolutionSpec",
    "DistanceVectorsSpec",
    "EmbeddingSpec",
    "EncoderSpec",
    "FeedForwardSpec",
    "NormSpec",
    "RelativeBiasSpec",
    "RotaryScaling",
    "RotarySpec",
]

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
# The share of tokens that were mask tokens when ESM was trained: 80 % of 15 %.
MASKED_IN_TRAINING = 0.15 * 0.8


@dataclass(frozen=True, kw_only=True)
class NormSpec:
    """A layer norm, or with ``centred=False`` an RMS norm, which has neither mean nor bias.

    ``offset``: added to the stored weight (Gemma: 1).
    """

    epsilon: float = 1e-12
    bias: bool = True
    centred: bool = True
    offset: float = 0.0

    def __post_init__(self) -> None:
        if self.bias and not self.centred:
            raise ConfigError("an RMS norm has no bias; pass bias=False, or centred=True")


@dataclass(frozen=True, kw_only=True)
class EmbeddingSpec:
    """Token, position and segment tables, added and normalised.

    ``width``: where it differs from the encoder's, a projection follows.
    ``projected``: a projection follows in any case (ALBERT).
    ``num_positions``, ``num_segments``: 0: no such table.
    ``first_position``: the table row of a sequence's first token (RoBERTa: ``padding_id + 1``).
    ``positions_skip_padding``: a padding token within a text has the position ``padding_id`` and is
    not counted (RoBERTa).
    ``scale``: multiplies the rows of tokens, before positions are added (Gemma, BART).
    ``mask_id``: the rows of this token are zero, and the other rows of its text are multiplied by
    0.88 / (1 - the mask tokens' share of the text), the token dropout of ESM (Rives et al. 2021).
    """

    vocab_size: int
    width: int
    num_positions: int = 0
    first_position: int = 0
    positions_skip_padding: bool = False
    num_segments: int = 0
    padding_id: int | None = None
    projected: bool = False
    norm: NormSpec | None = field(default_factory=NormSpec)
    dropout: float = 0.0
    scale: float = 1.0
    mask_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """A change of rotary angles for texts longer than those in pretraining.

    ``kind``: ``"linear"`` divides all angles by ``factor`` (Chen et al. 2023); ``"llama3"`` and
    ``"yarn"`` (Peng et al. 2024) divide those of long wavelengths, and blend in between.
    ``original_length``: the longest text in pretraining, in tokens; ``linear`` does not use it.
    ``low``, ``high``: the rotations within ``original_length`` between which angles are blended.
    ``magnitude``: multiplies cosines and sines (YaRN's attention factor).
    ``whole``: YaRN's limits are rounded to whole features.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    original_length: int = 1
    low: float = 1.0
    high: float = 4.0
    magnitude: float = 1.0
    whole: bool = True

    def __post_init__(self) -> None:
        if self.factor <= 0.0 or self.original_length < 1 or not 0.0 < self.low < self.high:
            raise ConfigError(
                "a rotary scaling needs factor > 0, original_length >= 1 and 0 < low < high, got "
                f"{self.factor}, {self.original_length}, {self.low} and {self.high}"
            )


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """Rotary position embeddings, with angles ``position * base^(-2i/head_dim)``.

    ``stretch``: the factor of NTK-aware scaling, for texts that many times longer than in training:
    it multiplies the base, and all angles are divided by ``stretch^(2/head_dim)``.
    ``scaling``: another change of the angles.
    ``fraction``: the share of each head's features that are rotated, the first ones.
    ``turns_values``: the value vectors are rotated as well (RoFormer).
    ``interleaved``: a checkpoint has the two features of a pair side by side; the engine's
    parameters have the first features of all pairs of a head, then the second ones.
    """

    base: float
    stretch: float = 1.0
    scaling: RotaryScaling | None = None
    fraction: float = 1.0
    turns_values: bool = False
    interleaved: bool = False

    def __post_init__(self) -> None:
        # The ramp of YaRN divides by the logarithm of the base.
        is_ramp = self.scaling is not None and self.scaling.kind == "yarn"
        if not 0.0 < self.base < float("inf") or (is_ramp and self.base == 1.0):
            raise ConfigError(
                f"the base of a rotary embedding must be positive and finite"
                f"{', and not 1' * is_ramp}, got {self.base:g}"
            )
        if (self.turns_values or self.interleaved) and self.fraction != 1.0:
            raise ConfigError(
                "interleaved=True and turns_values=True need fraction=1.0: all features are turned"
            )

    def width(self, head_dim: int) -> int:
        """Return the number of features of a head of size ``head_dim`` that are rotated."""
        return int(head_dim * self.fraction)


@dataclass(frozen=True, kw_only=True)
class RelativeBiasSpec:
    """A relative bias: a learned number per bucket and head, added to the scores.

    The buckets are those of :func:`encoder_engine.ops.relative_position_buckets`.
    """

    num_buckets: int
    max_distance: int

    def __post_init__(self) -> None:
        exact, rest = divmod(self.num_buckets, 4)
        if exact < 1 or rest or self.max_distance <= exact:
            raise ConfigError(
                "a relative bias needs a multiple of 4 buckets, and a largest distance of more "
                f"than a quarter of them, got {self.num_buckets} and {self.max_distance}"
            )


@dataclass(frozen=True, kw_only=True)
class DistanceVectorsSpec:
    """Learned vectors of distances, which ``disentangled`` blocks project.

    ``num_buckets``: half the number of vectors; None: ``max_distance``; see
    :func:`encoder_engine.ops.log_position_entries`.
    ``dropout``: of the vectors before each block's projection.
    """

    num_buckets: int | None
    max_distance: int
    norm: NormSpec | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        buckets = self.num_buckets
        if buckets is None:
            return
        if buckets < 4 or buckets % 2 or self.max_distance - 1 <= buckets // 2:
            raise ConfigError(
                "buckets of distance vectors must be even and at least 4, and the largest distance "
                f"more than half of them and 1, got {buckets} and {self.max_distance}"
            )

    @property
    def num_vectors(self) -> int:
        """The number of distance vectors in the table."""
        return 2 * (self.max_distance if self.num_buckets is None else self.num_buckets)


@dataclass(frozen=True, kw_only=True)
class ConvolutionSpec:
    """A convolution over neighbouring tokens, with equal input and output width, and activation."""

    kernel_size: int
    activation: Literal["gelu", "tanh"]
    norm: NormSpec
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ConfigError(f"a convolution's kernel_size must be odd, got {self.kernel_size}")


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Multi-head self-attention.

    ``num_key_heads``: heads of key and value, shared by as many query heads each (Ainslie et al.
    2023); None: one for each query head.
    ``bias``: in the projections of query, key and value; ``output_bias``: in the output's.
    ``key_bias``: False: the key's part of the bias is zero, and stays so in training.
    ``stacked_by_head``: a checkpoint has query, key and value of a head side by side.
    ``query_key_norm``: the norm of query and key before the rotary embedding. ``norm_by_head``:
    each head is normalised by itself; False: all heads together.
    ``scale``: of the scores; None: ``head_dim ** -0.5``.
    ``causal``: no token attends to a later one.
    ``window``: tokens seen on either side; None: all.
    ``alibi_slopes``: by head, subtracted from the scores per token of distance.
    ``global_projections``: tokens with global attention have their own query, key and value
    projections (Longformer).
    ``relative_bias``: the block's own bias; the bias of an :class:`EncoderSpec` is shared by all
    blocks.
    ``disentangled``: the terms with distance vectors: ``"query"``, ``"key"`` or both.
    ``distance_projections``: distance vectors have their own projections, of the key without a
    bias, of the query with one (DeBERTa); False: they share those of the tokens.
    ``dropout``: of the attention weights; ``output_dropout``: of the result.
    """

    num_heads: int
    head_dim: int
    num_key_heads: int | None = None
    bias: bool = True
    output_bias: bool = True
    key_bias: bool = True
    stacked_by_head: bool = False
    query_key_norm: NormSpec | None = None
    norm_by_head: bool = True
    scale: float | None = None
    causal: bool = False
    window: int | None = None
    rotary: RotarySpec | None = None
    alibi_slopes: tuple[float, ...] | None = None
    global_projections: bool = False
    relative_bias: RelativeBiasSpec | None = None
    disentangled: tuple[Literal["query", "key"], ...] = ()
    distance_projections: bool = False
    dropout: float = 0.0
    output_dropout: float = 0.0

    @property
    def query_width(self) -> int:
        """The number of features of all heads' queries together."""
        return self.num_heads * self.head_dim

    @property
    def key_heads(self) -> int:
        """The number of heads of key and value."""
        return self.num_heads if self.num_key_heads is None else self.num_key_heads

    @property
    def key_width(self) -> int:
        """The number of features of all heads' keys together."""
        return self.key_heads * self.head_dim

    @property
    def query_key_widths(self) -> tuple[int, int]:
        """The widths of the norms that are applied to query and key."""
        by_head = (self.head_dim, self.head_dim)
        return by_head if self.norm_by_head else (self.query_width, self.key_width)


@dataclass(frozen=True, kw_only=True)
class FeedForwardSpec:
    """Two dense layers with an activation between them.

    ``gated``: the first layer is twice as wide; its activated half multiplies the other half.
    ``dropout``: after the activation; ``output_dropout``: of the result.
    """

    width: int
    activation: Activation = "gelu"
    gated: bool = False
    up_bias: bool = True
    down_bias: bool = True
    dropout: float = 0.0
    output_dropout: float = 0.0

    def __post_init__(self) -> None:
        gates = ("gelu", "gelu_tanh", "silu")
        able = gates if self.gated else ("gelu", "gelu_tanh", "relu")
        if self.activation not in able:
            what = "gated feed-forward layer" if self.gated else "feed-forward layer without a gate"
            raise UnsupportedFeatureError(
                f"a {what} is activated by one of {', '.join(able)}, not by {self.activation}"
            )


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """Attention and feed-forward, each with a residual connection.

    Post-norm by default: the sum after each residual is normalised. ``norm_first=True`` (pre-norm):
    the inputs are normalised instead. ``attention_norm=False``: no norm before attention
    (ModernBERT's first block). ``output_norms=True``: the outputs of attention and feed-forward are
    normalised as well, before they are added (Gemma). ``sum_norm=True`` (post-norm): attention's
    output plus its input is normalised, and then added to the input once more (JinaBERT for German,
    Spanish, Chinese and code).
    """

    attention: AttentionSpec
    feed_forward: FeedForwardSpec
    norm: NormSpec = field(default_factory=NormSpec)
    norm_first: bool = False
    attention_norm: bool = True
    output_norms: bool = False
    sum_norm: bool = False

    def __post_init__(self) -> None:
        if self.sum_norm and self.norm_first:
            raise ConfigError("sum_norm=True needs norm_first=False")
        if self.output_norms and not self.norm_first:
            raise ConfigError("output_norms=True needs norm_first=True")
        if not (self.attention_norm or self.norm_first):
            raise ConfigError("attention_norm=False needs norm_first=True")


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """A whole encoder.

    ``model_type``: the family in whose format it is read and written.
    ``order``: indices of the blocks in the order of computation, with repeats (ALBERT); None: each
    block once.
    ``convolution``: a convolution of the embeddings, added to the first block's output (DeBERTa
    v2).
    ``final_norm``, ``final_dropout``: a norm and dropout after the last block.
    ``pooler``: a dense layer and tanh on the first row of each sequence.
    ``position_limit``: without a table of positions, the maximum length of a sequence; None: any.

    Raises :class:`ConfigError` for sizes that contradict each other.
    """

    model_type: str
    width: int
    embedding: EmbeddingSpec
    blocks: tuple[BlockSpec, ...]
    order: tuple[int, ...] | None = None
    relative_bias: RelativeBiasSpec | None = None
    distance_vectors: DistanceVectorsSpec | None = None
    convolution: ConvolutionSpec | None = None
    final_norm: NormSpec | None = None
    final_dropout: float = 0.0
    pooler: bool = False
    position_limit: int | None = None
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        sizes = {
            "width": self.width,
            "vocab_size": self.embedding.vocab_size,
            "embedding width": self.embedding.width,
        }
        if self.max_length is not None:
            sizes["longest sequence (positions after first_position)"] = self.max_length
        for index, block in self._distinct_blocks():
            sizes[f"block {index} num_heads"] = block.attention.num_heads
            sizes[f"block {index} num_key_heads"] = block.attention.key_heads
            sizes[f"block {index} head_dim"] = block.attention.head_dim
            sizes[f"block {index} feed-forward width"] = block.feed_forward.width
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"{name} must be at least 1, got {size}")
        if self.order is not None and set(self.order) != set(range(len(self.blocks))):
            raise ConfigError(
                f"order must name each of the {len(self.blocks)} blocks, 0 to "
                f"{len(self.blocks) - 1}, at least once, got {self.order}"
            )
        self._check_attention()

    def _check_attention(self) -> None:
        for index, block in self._distinct_blocks():
            attention = block.attention
            slopes = attention.alibi_slopes
            if attention.num_heads % attention.key_heads:
                raise ConfigError(
                    f"block {index} has {attention.num_heads} heads of queries and "
                    f"{attention.key_heads} of keys; the second number must divide the first"
                )
            plain = attention.key_heads == attention.num_heads and not attention.causal
            if not plain and (attention.disentangled or attention.global_projections):
                raise ConfigError(
                    f"block {index} is causal or shares key heads: it can be neither disentangled "
                    "nor have global_projections"
                )
            if slopes is not None and len(slopes) != attention.num_heads:
                raise ConfigError(
                    f"block {index} has {attention.num_heads} heads and {len(slopes)} alibi_slopes"
                )
            if attention.disentangled and self.distance_vectors is None:
                raise ConfigError(f"block {index} is disentangled: it needs distance_vectors")
            if attention.rotary is not None and self.max_length is None:
                raise ConfigError(f"block {index} has rotary positions: set position_limit")
            if attention.global_projections and attention.window is None:
                raise ConfigError(f"block {index} has global_projections, but no window")
            if (self.relative_bias is not None) and attention.num_heads != self.num_heads:
                raise ConfigError(
                    f"block {index} has {attention.num_heads} heads, block 0 {self.num_heads}: one "
                    "relative_bias cannot serve both"
                )
            if self.relative_bias is not None and attention.relative_bias is not None:
                raise ConfigError(
                    f"block {index} has a relative_bias of its own beside the encoder's: state one"
                )

    def _distinct_blocks(self) -> Iterable[tuple[int, BlockSpec]]:
        """List each distinct block with its first index: many layers may share one block."""
        numbers = range(len(self.blocks))
        # The first of equal keys stays, because it is set last.
        first = dict(zip(reversed([*map(id, self.blocks)]), reversed(numbers), strict=True))
        return [(index, self.blocks[index]) for index in sorted(first.values())]

    @property
    def num_heads(self) -> int:
        """The number of heads of the first block."""
        return self.blocks[0].attention.num_heads

    @property
    def relative_biases(self) -> frozenset[RelativeBiasSpec]:
        """The relative bias that all blocks share, or those of single blocks."""
        own = (block.attention.relative_bias for _, block in self._distinct_blocks())
        return frozenset(bias for bias in (self.relative_bias, *own) if bias is not None)

    @property
    def is_causal(self) -> bool:
        """True if no token of any block attends to a later one."""
        return bool(self.blocks) and all(b.attention.causal for _, b in self._distinct_blocks())

    @property
    def num_layers(self) -> int:
        """The number of layers; a shared block counts each time."""
        return len(self.blocks if self.order is None else self.order)

    @property
    def max_length(self) -> int | None:
        """The most tokens of a sequence, special tokens included; None: no limit."""
        embedding = self.embedding
        if embedding.num_positions:
            return embedding.num_positions - embedding.first_position
        return self.position_limit
