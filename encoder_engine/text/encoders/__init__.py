"""Encoders behind a tokenizer: the C++ extension's own, and Hugging Face tokenizers."""
