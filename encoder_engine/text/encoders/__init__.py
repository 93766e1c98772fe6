"""What encodes a tokenizer's texts: the C++ extension, or Hugging Face tokenizers."""
