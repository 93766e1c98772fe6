"""Tasks whose models embed or rank texts: embedding, late interaction, sparse vectors, ranking."""
