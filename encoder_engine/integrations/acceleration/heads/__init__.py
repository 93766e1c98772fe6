"""transformers' heads on an accelerated encoder, which computes only the rows that they read."""
