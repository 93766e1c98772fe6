"""Lets this engine encode the calls of transformers' fast tokenizers."""
