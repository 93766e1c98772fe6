"""Encoders as values: specs, the one encoder module, checkpoints, and the families as data."""

from encoder_engine.models.encoder import Encoder, EncoderOutput
from encoder_engine.models.heads import (
    MaskedLM,
    NextSentence,
    QuestionAnswering,
    ReplacedTokens,
    SequenceClassification,
    TokenClassification,
)
from encoder_engine.models.registry import all_families, find_family
from encoder_engine.models.scalar_mix import ScalarMix
from encoder_engine.models.spec import (
    AttentionSpec,
    BlockSpec,
    ConvolutionSpec,
    DistanceVectorsSpec,
    EmbeddingSpec,
    EncoderSpec,
    FeedForwardSpec,
    NormSpec,
    RelativeBiasSpec,
    RotarySpec,
)

__all__ = [
    "AttentionSpec",
    "BlockSpec",
    "ConvolutionSpec",
    "DistanceVectorsSpec",
    "EmbeddingSpec",
    "Encoder",
    "EncoderOutput",
    "EncoderSpec",
    "FeedForwardSpec",
    "MaskedLM",
    "NextSentence",
    "NormSpec",
    "QuestionAnswering",
    "RelativeBiasSpec",
    "ReplacedTokens",
    "RotarySpec",
    "ScalarMix",
    "SequenceClassification",
    "TokenClassification",
    "all_families",
    "find_family",
]
