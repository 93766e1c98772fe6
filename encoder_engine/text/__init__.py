"""Text to tokens, packed, with the results of Hugging Face tokenizers; and vocabularies for it."""

from encoder_engine.text.encoding import Encoding
from encoder_engine.text.sampling import UnigramSampling
from encoder_engine.text.tokenizer import Tokenizer
from encoder_engine.text.training.options import TrainingOptions
from encoder_engine.text.training.train import train_tokenizer

__all__ = ["Encoding", "Tokenizer", "TrainingOptions", "UnigramSampling", "train_tokenizer"]
