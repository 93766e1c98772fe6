"""Training objectives: corruption of clean batches, heads, and losses."""
