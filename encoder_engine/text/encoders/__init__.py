"""Encoders of a tokenizer: the C++ extension's, and Hugging Face tokenizers."""
