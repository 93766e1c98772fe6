"""The compiled encoder: a checkpoint as one native plan, without PyTorch."""

from encoder_engine.inference.encoder import CompiledEncoder

__all__ = ["CompiledEncoder"]
