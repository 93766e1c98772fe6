"""Calls a tokenizer as the fast tokenizers of transformers are called."""
