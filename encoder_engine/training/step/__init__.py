"""Computes a training step: gradients over micro-batches, CUDA graphs, late reading."""
