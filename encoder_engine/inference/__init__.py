"""The compiled encoder: runs a checkpoint as one native call, without PyTorch."""

from encoder_engine.inference.encoder import CompiledEncoder

__all__ = ["CompiledEncoder"]
