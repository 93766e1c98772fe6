"""Noised texts of sequence-to-sequence pretraining, and pairs cut from documents."""
