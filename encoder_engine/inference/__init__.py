"""The compiled encoder: computes a batch by one native call, without PyTorch."""

from encoder_engine.inference.encoder import CompiledEncoder

__all__ = ["CompiledEncoder"]
