"""Tasks on sentences given as lists of words: rows, windows, models, decoding and scores.

The models, which need PyTorch or the extension, are imported at their first use.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.tasks.words.compiled_models import load_spans, load_tagger
    from encoder_engine.tasks.words.span_model import SpanModel
    from encoder_engine.tasks.words.tagging_model import TaggingModel

__all__ = ["SpanModel", "TaggingModel", "load_spans", "load_tagger"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "SpanModel": "span_model",
        "TaggingModel": "tagging_model",
        "load_spans": "compiled_models",
        "load_tagger": "compiled_models",
    },
)
