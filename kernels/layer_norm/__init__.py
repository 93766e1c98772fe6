"""Dropout, residual add and layer normalisation."""
