"""A readable tokenizer in plain Python, the oracle of the tests."""
