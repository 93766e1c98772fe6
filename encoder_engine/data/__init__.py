"""Training text on disk, and the way from there to clean batches.

Everything is a function of a seed, an epoch and a place in it: no order is remembered, so that a
run can go on anywhere, with any number of workers and ranks.
"""
