"""Fine-tuning: trains a checkpoint on labelled rows."""
