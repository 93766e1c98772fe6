"""Compares the engine with its peers: ``python -m benchmarks run | compare | report``.

A case (``cases/``) says what work is done, by which candidates, and what a correct result is;
a peer (``peers/``) says how another library does the same work. Both are found by their file names.
"""
