"""encoder-engine: the fastest and most trustworthy way to run and train BERT-family text encoders.

::

    import encoder_engine as ee
    embedder = ee.Embedder.from_pretrained("path/to/all-MiniLM-L6-v2")
    vectors = embedder.encode(["a text", "another"])  # float32 [2, 384]
"""

from encoder_engine import errors, ops, packing
from encoder_engine.embedding import EmbedBatch, Embedder, StoredVectors, load_vectors
from encoder_engine.models import Encoder, EncoderOutput
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences
from encoder_engine.text import Encoding, Tokenizer

__version__ = "0.1.0"

__all__ = [
    "EmbedBatch",
    "Embedder",
    "Encoder",
    "EncoderOutput",
    "Encoding",
    "PackedBatch",
    "SelectedRows",
    "Sequences",
    "StoredVectors",
    "Tokenizer",
    "__version__",
    "errors",
    "load_vectors",
    "ops",
    "packing",
]
