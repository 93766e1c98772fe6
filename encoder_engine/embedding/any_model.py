"""Loads what a directory holds, for callers that use either: encoders or tables, rankers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.causal_ranker import CausalRanker
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.ranker import Ranker
from encoder_engine.embedding.static.embedder import StaticEmbedder
from encoder_engine.embedding.static.reading import is_static
from encoder_engine.errors import InputError
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.checkpoints.files import fetching, take_directory
from encoder_engine.families.config import read_config
from encoder_engine.opening.modules import LOGIT_SCORE, MODULES, read_module_kinds
from encoder_engine.opening.recipe import encoder_directory

if TYPE_CHECKING:
    import os

__all__ = ["load_dense", "load_ranker"]

# The options of an encoder that a table has no use for, and the values at which they ask nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "device": ("auto", "cpu"),
    "dtype": ("auto", "float32"),
    "quantization": (None,),
    "pooling": (None, "mean", ("mean",)),
    "layers": (None,),
    "engine": ("auto", "compiled"),
}


@fetching
def load_dense(path_or_hub_id: str | os.PathLike[str], **options: Any) -> Embedder | StaticEmbedder:
    """Load a :class:`StaticEmbedder` where the directory holds a static model, else an Embedder.

    ``options``: those of :meth:`Embedder.from_pretrained`. Raises :class:`InputError` for one that
    a static model has no use for.
    """
    directory = take_directory(path_or_hub_id, options)
    if not is_static(directory):
        return Embedder.from_pretrained(directory, **options)
    for name, neutral in _NEUTRAL.items():
        value = options.get(name, neutral[0])
        if value not in neutral:
            raise InputError(
                f"{directory} holds a static table, which has no encoder: {name}={value!r} has no "
                "meaning; leave it out"
            )
    limit = options.get("max_seq_length")
    return StaticEmbedder.from_pretrained(
        directory,
        max_length="stated" if limit is None else limit,
        num_threads=options.get("num_threads"),
    )


@fetching
def load_ranker(path_or_hub_id: str | os.PathLike[str], **options: Any) -> Ranker:
    """Load a :class:`CausalRanker` where the directory holds a causal model, else a Ranker.

    As sentence-transformers decides: by LogitScore among the modules, or a causal model's class.
    ``options``: those that both have.
    """
    directory = take_directory(path_or_hub_id, options)
    if (directory / MODULES).is_file():
        is_causal = LOGIT_SCORE in read_module_kinds(directory)
    else:
        config = read_config(weights_directory(encoder_directory(directory)))
        named = config.get("architectures")
        first = named[0] if isinstance(named, list) and named else ""
        is_causal = str(first).endswith("ForCausalLM")
    return (CausalRanker if is_causal else Ranker).from_pretrained(directory, **options)
