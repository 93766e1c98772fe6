"""encoder-engine: the fastest and most trustworthy way to run and train BERT-family text encoders.

::

    import encoder_engine as ee
    embedder = ee.Embedder.from_pretrained("path/to/all-MiniLM-L6-v2")
    vectors = embedder.encode(["a text", "another"])  # float32 [2, 384]

Each name is imported at its first use (PEP 562): a user of the tokenizer does not wait for torch.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

try:
    # Before NumPy, which kills the process on a processor that the extension refuses in a sentence.
    from encoder_engine import _native as _native
except ImportError as error:
    if error.name is None:  # a refusal; an extension that is not built has its name
        raise

if TYPE_CHECKING:
    from encoder_engine import errors, ops, packing
    from encoder_engine.embedding import EmbedBatch, Embedder, StaticEmbedder
    from encoder_engine.finetuning.run import finetune as finetune
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.packing import PackedBatch, SelectedRows, Sequences
    from encoder_engine.prediction.any_predictor import PredictBatch
    from encoder_engine.prediction.chooser import Chooser
    from encoder_engine.prediction.classifier import Classifier
    from encoder_engine.prediction.mask_filler import MaskFiller
    from encoder_engine.prediction.pipeline import pipeline
    from encoder_engine.prediction.reader import Reader
    from encoder_engine.prediction.tagger import SpanTagger, Tagger
    from encoder_engine.prediction.zero_shot import ZeroShotClassifier
    from encoder_engine.text import Encoding, Tokenizer
    from encoder_engine.vectors import StoredVectors, load_vectors

__version__ = "0.1.0"

__all__ = [
    "Chooser",
    "Classifier",
    "CompiledEncoder",
    "EmbedBatch",
    "Embedder",
    "Encoder",
    "EncoderOutput",
    "Encoding",
    "MaskFiller",
    "PackedBatch",
    "PredictBatch",
    "Reader",
    "SelectedRows",
    "Sequences",
    "SpanTagger",
    "StaticEmbedder",
    "StoredVectors",
    "Tagger",
    "Tokenizer",
    "ZeroShotClassifier",
    "__version__",
    "errors",
    "load_vectors",
    "ops",
    "packing",
    "pipeline",
]

# The module that each name is in; "": a module itself.
_MODULES = {
    "Chooser": "prediction.chooser",
    "Classifier": "prediction.classifier",
    "MaskFiller": "prediction.mask_filler",
    "PredictBatch": "prediction.any_predictor",
    "Reader": "prediction.reader",
    "SpanTagger": "prediction.tagger",
    "Tagger": "prediction.tagger",
    "ZeroShotClassifier": "prediction.zero_shot",
    "CompiledEncoder": "inference",
    "EmbedBatch": "embedding",
    "Embedder": "embedding",
    "Encoder": "models",
    "EncoderOutput": "models",
    "Encoding": "text",
    "PackedBatch": "packing",
    "SelectedRows": "packing",
    "Sequences": "packing",
    "StaticEmbedder": "embedding",
    "StoredVectors": "vectors",
    "Tokenizer": "text",
    "embedding": "",
    "errors": "",
    # Not in __all__: a * would import the training loop, and torch.distributed with it.
    "finetune": "finetuning.run",
    "finetuning": "",
    "inference": "",
    "load_vectors": "vectors",
    "models": "",
    "ops": "",
    "packing": "",
    "pipeline": "prediction.pipeline",
    "text": "",
    "vectors": "",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
