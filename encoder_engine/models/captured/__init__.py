"""Computes batches of encoders by CUDA graphs."""

from encoder_engine.models.captured.encoder import CapturedEncoder
from encoder_engine.models.captured.short_batches import ShortBatches

__all__ = ["CapturedEncoder", "ShortBatches"]
