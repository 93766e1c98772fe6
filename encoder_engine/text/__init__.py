"""Tokenizers with the token ids of Hugging Face tokenizers, and the training of vocabularies.

Each name is imported at its first use, so that using a tokenizer does not import its trainers.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.text.encoding import Encoding
    from encoder_engine.text.sampling import UnigramSampling
    from encoder_engine.text.tokenizer import Tokenizer
    from encoder_engine.text.training.options import TrainingOptions
    from encoder_engine.text.training.train import train_tokenizer

__all__ = ["Encoding", "Tokenizer", "TrainingOptions", "UnigramSampling", "train_tokenizer"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Encoding": "encoding",
        "Tokenizer": "tokenizer",
        "TrainingOptions": "training.options",
        "UnigramSampling": "sampling",
        "train_tokenizer": "training.train",
    },
)
