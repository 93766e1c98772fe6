"""Text to tokens: native WordPiece with the results of Hugging Face tokenizers, packed."""

from encoder_engine.text.encoding import Encoding
from encoder_engine.text.tokenizer import Tokenizer

__all__ = ["Encoding", "Tokenizer"]
