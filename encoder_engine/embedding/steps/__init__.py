"""Steps from texts to vectors: check, tokenize, batch, compute, pool."""
