"""Chooses the engine of a loading, and imports PyTorch where it is the one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MissingDependencyError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from encoder_engine.embedding.engines.engine import (
        ScoringEngine,
        VectorEngine,
        VocabularyEngine,
    )
    from encoder_engine.models import Encoder, MaskedLM, SequenceClassification

__all__ = [
    "EngineRequest",
    "load_encoder",
    "load_masked_lm",
    "load_sequence_classification",
    "require_torch",
    "scoring_engine",
    "vector_engine",
    "vocabulary_engine",
]


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """The device and the precision of a loading, by name; see :meth:`Embedder.from_pretrained`."""

    device: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None
    num_threads: int | None = None

    @classmethod
    def of(
        cls,
        device: str | torch.device,
        dtype: str | torch.dtype,
        quantization: str | None = None,
        num_threads: int | None = None,
    ) -> EngineRequest:
        """Name the device and the dtype of PyTorch's objects."""
        return cls(
            device=str(device),
            dtype=str(dtype).removeprefix("torch."),
            quantization=quantization,
            num_threads=num_threads,
        )


def load_encoder(directory: Path, request: EngineRequest) -> Encoder:
    """Load an encoder for inference. Exceptions: see :meth:`Encoder.from_pretrained`."""
    module = require_torch(f"computing {directory} by modules", request)
    encoder: Encoder = module.load_encoder(
        directory, device=request.device, dtype=request.dtype, quantization=request.quantization
    )
    return encoder


def load_sequence_classification(directory: Path, request: EngineRequest) -> SequenceClassification:
    """Load a classifier for inference. Exceptions: see :meth:`HeadModel.from_pretrained`."""
    module = require_torch(f"computing {directory} by modules", request)
    model: SequenceClassification = module.load_sequence_classification(
        directory, device=request.device, dtype=request.dtype
    )
    return model


def load_masked_lm(directory: Path, request: EngineRequest) -> MaskedLM:
    """Load a masked LM for inference. Exceptions: see :meth:`HeadModel.from_pretrained`."""
    module = require_torch(f"computing {directory} by modules", request)
    model: MaskedLM = module.load_masked_lm(directory, device=request.device, dtype=request.dtype)
    return model


def vector_engine(encoder: Encoder) -> VectorEngine:
    """Return the engine that computes an encoder."""
    engine: VectorEngine = require_torch("an Encoder").EncoderModule(encoder)
    return engine


def scoring_engine(model: SequenceClassification) -> ScoringEngine:
    """Return the engine that computes a classifier."""
    engine: ScoringEngine = require_torch("a model").SequenceClassificationModule(model)
    return engine


def vocabulary_engine(model: MaskedLM) -> VocabularyEngine:
    """Return the engine that computes a masked LM."""
    engine: VocabularyEngine = require_torch("a model").MaskedLMModule(model)
    return engine


def require_torch(purpose: str, request: EngineRequest | None = None) -> Any:
    """Import the engine of PyTorch's modules; ``purpose`` begins the message where torch is absent.

    The threads of a ``request`` are set for the whole process, which is how PyTorch has them.
    Raises :class:`MissingDependencyError`.
    """
    try:
        from encoder_engine.embedding.engines import module
    except ImportError as error:
        if (error.name or "torch").partition(".")[0] != "torch":
            raise
        raise MissingDependencyError(purpose, library="torch", extra="torch") from None
    if request is not None and request.num_threads is not None:
        module.set_num_threads(request.num_threads)
    return module
