"""Reads the files of a model directory that define how vectors are computed from texts."""
