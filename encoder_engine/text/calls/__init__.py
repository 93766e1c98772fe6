"""Makes tokenizers callable with the arguments of transformers' fast tokenizers."""
