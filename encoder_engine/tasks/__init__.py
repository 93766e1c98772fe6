"""Tasks: each reads rows, makes tokens, targets, head and loss, decodes and scores."""
