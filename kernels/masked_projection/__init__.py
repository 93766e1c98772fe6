"""Vocabulary projection and cross-entropy of masked tokens only."""
