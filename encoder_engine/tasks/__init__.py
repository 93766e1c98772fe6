"""Tasks: rows to examples, tokens and targets, a head, a loss, decoding and scores."""
