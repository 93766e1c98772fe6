"""Families of encoders as data: specifications, names in checkpoints, configurations."""
