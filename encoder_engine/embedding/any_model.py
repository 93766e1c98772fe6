"""Loads what a directory holds, an encoder or a static table, for callers that embed by either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.static.embedder import StaticEmbedder
from encoder_engine.embedding.static.reading import is_static
from encoder_engine.errors import InputError
from encoder_engine.families.checkpoints.files import HubKeywords, fetching, resolve_directory

if TYPE_CHECKING:
    import os

__all__ = ["load_dense"]

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
    hub = {name: options.pop(name) for name in HubKeywords.__annotations__ if name in options}
    directory = resolve_directory(path_or_hub_id, **hub)
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
