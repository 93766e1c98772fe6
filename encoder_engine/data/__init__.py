"""Training text on disk, and how clean batches are made of it.

Order, packing and pairs are a pure function of (seed, epoch, place). No order is stored, so a run
resumes anywhere, with any number of workers and ranks.
"""
