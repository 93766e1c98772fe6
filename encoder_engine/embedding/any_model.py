"""Loads a model directory by the class that fits it.

For dense vectors that is an encoder or a static table, for rankings a cross-encoder or a causal
model.
"""

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

# Options of encoders that have no meaning for a table, and the values that are accepted
# nevertheless.
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

    ``options``: those of :meth:`Embedder.from_pretrained`. Raises :class:`InputError` for an option
    that static models do not have.
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

    As in sentence-transformers, LogitScore among the modules decides, or without modules the class
    of the model in config.json. ``options``: those that both classes have.
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
