"""Models whose tokenizers, adapters or settings ask for more than the plain layout."""
