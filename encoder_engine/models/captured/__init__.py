"""Encoders whose batches are computed by CUDA graphs."""

from encoder_engine.models.captured.encoder import CapturedEncoder

__all__ = ["CapturedEncoder"]
