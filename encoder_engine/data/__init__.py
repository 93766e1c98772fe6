"""Training text on disk, and how clean batches are made of it.

Order, packing and pairs are pure functions of the seed, the epoch and the place in the epoch. No
order is stored, so a run resumes anywhere, with any number of workers and ranks.
"""
