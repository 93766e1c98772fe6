"""Reads the files of a model directory that say how texts become vectors."""
