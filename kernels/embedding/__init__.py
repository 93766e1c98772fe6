"""Token, position and segment embeddings, added and normalised."""
