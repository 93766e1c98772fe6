"""The outputs that an engine can compute of token rows; a call names those it requests.

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
    """One vector per sequence, [B, N]: pooled by each mode, concatenated, passed through modules.

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
    """The vector of each token, [T, D]; with ``modules`` [T, N]; other fields: see Pooled."""

    modules: ModuleStack = EMPTY_STACK
    normalized: bool = False
    layers: LayerWeights | None = None


class Scores(NamedTuple):
    """The activated logits of each sequence, [B, C], from a classifier's head."""

    activation: Literal["identity", "sigmoid"] = "identity"


class Logits(NamedTuple):
    """The head's logits: [B, C] of sequences, [T, C] of tokens, or [M, C] of chosen ones.

    chosen: ascending indices of tokens, integers [M]; None: every row that the head reads.
    """

    chosen: np.ndarray[Any, np.dtype[Any]] | None = None


class VocabularyWeights(NamedTuple):
    """The weight of every token of the vocabulary for each sequence, [B, V], of a masked LM.

    A weight is ``log(1 + relu(logit))``, with ``"log1p_relu"`` the logarithm taken twice, pooled
    over the sequence's positions.
    """

    pooling: SparsePooling = "max"
    activation: SparseActivation = "relu"


class LogProbabilities(NamedTuple):
    """The log-probability of each token given those before it, [T]; 0 for a sequence's first."""


class LastLogits(NamedTuple):
    """The logits of some tokens after each sequence, [B, K], of a causal model."""

    token_ids: tuple[int, ...]


Output = Pooled | TokenStates | Scores | Logits | VocabularyWeights | LogProbabilities | LastLogits
