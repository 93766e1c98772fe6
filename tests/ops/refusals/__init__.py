"""Who refuses what, listed and held."""
