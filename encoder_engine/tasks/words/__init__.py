"""Tasks on sentences of given words: rows, windows, models, decoding and scores."""
