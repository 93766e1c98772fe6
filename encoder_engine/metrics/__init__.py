"""Scores of predictions: pure functions of NumPy arrays and lists, without PyTorch.

Scores are shares from 0 to 1, correlations from -1 to 1. A score that is not defined for its input
(the correlation of a constant) is NaN, unless it is defined as 0, as F1 and Matthews' correlation.
"""
