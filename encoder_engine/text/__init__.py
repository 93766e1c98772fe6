"""Tokenizers: texts to packed token ids, equal to Hugging Face tokenizers; and their training."""

from encoder_engine.text.encoding import Encoding
from encoder_engine.text.sampling import UnigramSampling
from encoder_engine.text.tokenizer import Tokenizer
from encoder_engine.text.training.options import TrainingOptions
from encoder_engine.text.training.train import train_tokenizer

__all__ = ["Encoding", "Tokenizer", "TrainingOptions", "UnigramSampling", "train_tokenizer"]
