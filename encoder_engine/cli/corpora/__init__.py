"""The verbs of corpora: cleaning, and cards."""
