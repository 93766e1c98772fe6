"""The outputs that an engine can compute of texts' token ids; each class requests one.

Dimensions: T packed tokens, B sequences, D features, N outputs, C labels, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from encoder_engine.packing.module_stack import EMPTY_STACK, ModuleStack, ScoreActivation

if TYPE_CHECKING:
    import numpy as np

    from encoder_engine.packing.pooling_modes import PoolingMode

__all__ = [
    "Activation",
    "LastLogits",
    "LayerWeights",
    "LogProbabilities",
    "Logits",
    "Output",
    "Pooled",
    "Scores",
    "SparseActivation",
    "SparsePooling",
    "TokenStates",
    "VocabularyWeights",
]

# The activations of a cross-encoder's scores: those of torch.nn that need no parameters.
Activation = ScoreActivation
SparsePooling = Literal["max", "sum"]
SparseActivation = Literal["relu", "log1p_relu"]
# Hidden states by number (0: the embeddings), and their weights in a sum.
LayerWeights = tuple[tuple[int, float], ...]


class Pooled(NamedTuple):
    """Requests a vector per sequence, [B, N]: pooled by each mode, concatenated, through modules.

    num_prompt_tokens: the number of leading rows to leave out; every sequence has more.
        ``weightedmean`` still counts positions from the start, as sentence-transformers does.
    normalized: divide by the Euclidean norm.
    dimension: the number of leading features to keep, before the division; None: all.
    layers: pool the weighted sum of these layers' hidden states; None: the last layer.
    """

    modes: tuple[PoolingMode, ...]
    num_prompt_tokens: int = 0
    normalized: bool = False
    dimension: int | None = None
    layers: LayerWeights | None = None


class TokenStates(NamedTuple):
    """Requests a vector per token, [T, D]; with ``modules`` [T, N]; other fields: see Pooled."""

    modules: ModuleStack = EMPTY_STACK
    normalized: bool = False
    layers: LayerWeights | None = None


class Scores(NamedTuple):
    """Requests the activated logits of each sequence, [B, C], from a classifier's head."""

    activation: Literal["identity", "sigmoid"] = "identity"


class Logits(NamedTuple):
    """Requests the head's logits: [B, C] of sequences, [T, C] of tokens, or [M, C] of chosen ones.

    chosen: ascending indices of tokens, integers [M]; None: every row that the head reads.
    """

    chosen: np.ndarray[Any, np.dtype[Any]] | None = None


class VocabularyWeights(NamedTuple):
    """Requests, for each sequence, a weight of every token of the vocabulary, [B, V] (SPLADE).

    A masked language model's logits become ``log(1 + relu(logit))``, and are pooled over the
    sequence's positions. ``activation="log1p_relu"``: the logarithm is taken twice.
    """

    pooling: SparsePooling = "max"
    activation: SparseActivation = "relu"


class LogProbabilities(NamedTuple):
    """Requests each token's log-probability given those before it, [T]; a text's first has 0."""


class LastLogits(NamedTuple):
    """Requests a causal model's logits of K given tokens after each sequence's last, [B, K]."""

    token_ids: tuple[int, ...]


Output = Pooled | TokenStates | Scores | Logits | VocabularyWeights | LogProbabilities | LastLogits
