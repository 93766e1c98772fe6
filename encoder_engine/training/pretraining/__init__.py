"""Pretrains encoders on a corpus: recipes, batches, the model, evaluation."""
