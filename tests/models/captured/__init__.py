"""Encoders whose batches are computed by CUDA graphs."""
