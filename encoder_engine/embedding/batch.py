"""Former place of EmbedBatch, named in pickles of former versions; goes in the next release."""

from encoder_engine.embedding.embed_batch import EmbedBatch

__all__ = ["EmbedBatch"]
