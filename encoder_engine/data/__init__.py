"""Tokenized training text on disk, and the batches of unmasked sequences made of it.

Order, packing and pairs are pure functions of the seed, the epoch and the index in the epoch. No
order is stored, so a run resumes at any step, with any number of workers and ranks.
"""
