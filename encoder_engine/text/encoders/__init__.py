"""The encoders behind a tokenizer: the C++ extension's, and Hugging Face tokenizers."""
