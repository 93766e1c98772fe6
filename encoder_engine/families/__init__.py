"""Families of encoders as values: specifications, names in checkpoints, configurations."""
