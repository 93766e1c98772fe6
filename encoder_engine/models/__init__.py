"""Encoders as one PyTorch module for all families, heads for tasks, and checkpoints."""

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.models")

from encoder_engine.families.facts.spec import (
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
from encoder_engine.families.registry import all_families, find_family
from encoder_engine.models.captured import CapturedEncoder
from encoder_engine.models.encoder import Encoder, EncoderOutput
from encoder_engine.models.heads import (
    MaskedLM,
    NextSentence,
    QuestionAnswering,
    ReplacedTokens,
    SequenceClassification,
    TokenClassification,
)
from encoder_engine.models.scalar_mix import ScalarMix

__all__ = [
    "AttentionSpec",
    "BlockSpec",
    "CapturedEncoder",
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
