"""Prediction: fine-tuned models applied to texts and files."""
