"""Fine-tuning: trains a checkpoint on a task, such as classification, by files of labelled rows."""
