"""Fine-tuning: labelled rows and a checkpoint become a model."""
