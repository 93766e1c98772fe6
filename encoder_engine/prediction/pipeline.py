"""Calls models as transformers' pipelines are called: their keywords, dicts, shapes and numbers.

``docs/pipelines.md`` lists the cases where a result differs: where transformers fails, gives nan,
loses a part of the text, or returns a value that JSON cannot hold.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.errors import InputError, MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.json_values import nearest
from encoder_engine.prediction.pipeline_base import HINTS, Pipeline, check_keywords
from encoder_engine.prediction.pipeline_tasks import PIPELINES
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    import os

    import torch

    from encoder_engine.prediction.mask_filler import MaskFiller
    from encoder_engine.prediction.predictor import Predictor

__all__ = ["pipeline"]

# The keywords of ``from_pretrained``; all other keywords belong to the pipeline's calls.
_LOADING = (
    *("dtype", "quantization", "num_threads", "engine"),
    *("revision", "token", "cache_dir", "local_files_only"),
)


def pipeline(
    task: str,
    model: str | os.PathLike[str] | Predictor | MaskFiller | Embedder,
    *,
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
    device: str | int | torch.device | None = None,
    **options: Any,
) -> Pipeline:
    """Make a pipeline with the call and the results of transformers' pipelines.

    task: ``"text-classification"`` (``"sentiment-analysis"``), ``"token-classification"``
        (``"ner"``), ``"zero-shot-classification"``, ``"question-answering"``, ``"fill-mask"`` or
        ``"feature-extraction"``.
    model: a directory or hub id, or a model of the task's class that was loaded before.
    tokenizer: a directory of another tokenizer than the model's, or a :class:`Tokenizer`.
    device: ``"cpu"``, ``"cuda:1"``, or a number as in transformers, where -1 is the CPU; None: a
        GPU if there is one.
    options: keywords for all calls, such as ``top_k``, and for loading: ``dtype``,
        ``quantization``, ``num_threads``, ``engine``, ``revision``, ``token``, ``cache_dir``,
        ``local_files_only``.

    Raises :class:`InputError` for an unknown task, ``TypeError`` for an unknown keyword, and
    :class:`UnsupportedFeatureError` for a model of another task, which names the class that loads
    it. Other exceptions: see :meth:`Classifier.from_pretrained`.
    """
    if task not in PIPELINES:
        raise InputError(
            f"there is no pipeline {task!r}{nearest(str(task), PIPELINES)}; there are "
            f"{', '.join(PIPELINES)}"
        )
    kind = PIPELINES[task]
    check_keywords(f"pipeline({task!r})", options, (*kind.keywords, *HINTS, *_LOADING))
    loading = {name: options.pop(name) for name in _LOADING if name in options}
    if device is not None:
        loading["device"] = _device(device)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.from_pretrained(tokenizer)
    return kind(task, _load(kind.loads, model, tokenizer, loading), options)


def _load(
    loads: type[Any], model: Any, tokenizer: Tokenizer | None, loading: dict[str, Any]
) -> Any:
    """Return the model of a pipeline; load it by the class ``loads`` if it is given by a path."""
    if isinstance(model, loads):
        if loading or tokenizer is not None:
            raise InputError(
                f"{', '.join(loading) or 'tokenizer'} is of loading, and the model is loaded "
                "already; leave it out, or pass the model's directory"
            )
        return model
    if hasattr(model, "engine"):
        raise InputError(f"the pipeline computes with a {loads.__name__}, got {model!r}")
    if tokenizer is not None:
        loading["tokenizer"] = tokenizer
    if loads is not Embedder:
        return loads.from_pretrained(model, **loading)
    loading.pop("tokenizer", None)
    with warnings.catch_warnings():
        # Features are the encoder's, whatever head the checkpoint has.
        warnings.simplefilter("ignore", UnusedWeightsWarning)
        warnings.simplefilter("ignore", MissingPoolerWarning)
        embedder = Embedder.from_pretrained(model, pooling="mean", **loading)
    if tokenizer is not None:
        embedder.tokenizer = tokenizer.fitted_to(embedder.engine.spec.embedding.vocab_size)
    return embedder


def _device(device: Any) -> Any:
    if isinstance(device, int) and not isinstance(device, bool):
        return "cpu" if device < 0 else f"cuda:{device}"
    return device
