"""Makes tokenizers callable, with the arguments and results of transformers' fast tokenizers."""
