"""Quantization of rows to bytes with a scale each, for integer matrix products on a CPU."""
