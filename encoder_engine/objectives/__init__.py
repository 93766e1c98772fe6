"""Training objectives: corruption of batches, heads, and losses."""

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.objectives")
