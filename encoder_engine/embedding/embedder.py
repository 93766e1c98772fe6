"""Texts in, vectors out: the tokenizer, the encoder and the pooling of one model directory.

How it works: a stream of texts is cut into windows of 4,096 texts or 16 million characters, so that
memory is constant. The texts of a window are tokenized by all threads, sorted by length and grouped
into batches of at most ``batch_tokens`` tokens; a batch is packed, encoded and pooled without
padding, and its vectors are written at the rows of their texts. ``steps/window.py`` is that loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.engines.choosing import EngineRequest
from encoder_engine.embedding.jobs.dense import DenseJob
from encoder_engine.embedding.library_keywords import naming
from encoder_engine.embedding.loading import load_parts
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.queries import DenseMethods
from encoder_engine.embedding.saving.sentence_directory import save_embedder
from encoder_engine.embedding.steps.long_texts import embed_long
from encoder_engine.embedding.steps.token_vectors import embed_tokens
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import EmbeddedWindow, embed_windows
from encoder_engine.families.checkpoints.files import fetching, resolve_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    import torch

    from encoder_engine.embedding.engines.engine import EngineChoice
    from encoder_engine.embedding.options import EncodeKeywords, EncodeOptions, OnTruncation
    from encoder_engine.embedding.steps.layers import Layers
    from encoder_engine.embedding.steps.long_texts import ChunkPooling
    from encoder_engine.embedding.steps.token_vectors import TokenVectors
    from encoder_engine.families.checkpoints.files import HubKeywords

__all__ = ["Embedder"]

Array = np.ndarray[Any, np.dtype[Any]]


class Embedder(DenseJob, DenseMethods):
    """Turns texts into vectors as sentence-transformers would with the same directory.

    An embedder is safe to call from several threads: a call changes no state, except that the
    encoder is put into evaluation mode.

    ``encoder``, ``tokenizer`` and ``recipe`` must belong together. Raises :class:`ConfigError`
    where a token id would lie outside the encoder's vocabulary, where the pooling was made for
    another width, or where ``max_seq_length`` leaves no room for a token.
    """

    def __repr__(self) -> str:
        """Return a line with the model's directory, family, width, limit, precision and engine."""
        engine = self.engine
        return (
            f"Embedder({self.recipe.encoder_directory}: {engine.spec.model_type}, "
            f"{engine.spec.width} features, max_seq_length={self.max_seq_length}, "
            f"{engine.quantization or engine.dtype} on {engine.device}, engine={engine.name!r})"
        )

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        pooling: str | Sequence[str] | None = None,
        max_seq_length: int | None = None,
        layers: Layers | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        task: str | None = None,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a sentence-transformers directory, or a plain transformers one with mean pooling.

        pooling: the mode or modes (``"mean"``, ``"cls"``, ...) instead of the directory's. Where
            neither names one, mean pooling with a :class:`DefaultPoolingWarning`.
        max_seq_length: replaces the directory's limit.
        layers: the layers to pool instead of the last. A list is averaged (``[-4, -3, -2, -1]``; 0
            are the embeddings); a mapping gives the weights of a sum, as of :class:`ScalarMix`.
        num_threads: the threads of a CPU; None: OMP_NUM_THREADS, or the physical cores within the
            process's affinity and the container's quota. With ``engine="torch"`` it holds for the
            process, and None leaves PyTorch's setting.
        engine: ``"compiled"`` computes on a CPU without PyTorch, ``"torch"`` by PyTorch's modules
            on any device. ``"auto"`` is the former, except where there is a GPU, and for dtypes and
            architectures that it does not compute.
        task: the name of the adapter to merge, of a model that has one for each of several tasks
            (jina-embeddings-v3); the prompt of that name becomes the default. None: no adapter, as
            published.
        hub: of an id on the hub: ``revision``, ``token``, ``cache_dir``, ``local_files_only``; see
            :class:`HubKeywords`.

        Raises :class:`ConfigError`, :class:`CheckpointError` or :class:`TokenizerFileError` for
        missing, malformed or contradictory files, :class:`ImplementationError` where a requested
        engine cannot compute the model, and :class:`MissingDependencyError` where only PyTorch can
        and it is not installed.
        """
        return load_parts(
            cls,
            resolve_directory(path_or_hub_id, **hub),
            EngineRequest.of(engine, device, dtype, quantization, num_threads, task),
            pooling=pooling,
            max_seq_length=max_seq_length,
            layers=layers,
        )

    def _windows(
        self, texts: Iterator[str], options: EncodeOptions, notice: TruncationNotice
    ) -> Iterator[EmbeddedWindow]:
        return embed_windows(self, texts, options, notice)

    def _notice(self, on_truncation: OnTruncation) -> TruncationNotice:
        return TruncationNotice.of(self, on_truncation)

    @naming("texts")
    def encode_long(
        self,
        texts: str | Iterable[str],
        *,
        overlap: int | None = None,
        chunk_pooling: ChunkPooling = "mean",
        **options: Unpack[EncodeKeywords],
    ) -> Array:
        """Embed texts of any length: one vector each, [N, D]; [D] for a single ``str``.

        A text of more than ``max_seq_length`` tokens is cut into chunks of that many, each with the
        special tokens and the prompt. Neighbouring chunks share ``overlap`` tokens (None: an eighth
        of a chunk). ``chunk_pooling`` joins the chunk vectors: ``"mean"``, ``"weighted"``
        by tokens, or ``"max"``; the result is normalised if the chunk vectors are. A text that fits
        in one chunk gets exactly the vector of :meth:`encode`. Other options and exceptions: see
        :meth:`encode`.
        """
        resolved = self.resolve(EncodeCall.of("encode_long", options))
        return embed_long(self, texts, resolved, overlap=overlap, chunk_pooling=chunk_pooling)

    @naming("texts")
    def encode_tokens(
        self,
        texts: str | Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool = False,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> TokenVectors:
        """Embed every token without pooling, special tokens and those of the prompt included.

        ``found[i]`` of the :class:`TokenVectors` are the vectors of text i, float32 [n, D]. Options
        and exceptions: see :meth:`encode`.
        """
        call = EncodeCall(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return embed_tokens(self, texts, self.resolve(call))

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write a directory of sentence-transformers: encoder, tokenizer, modules, prompts, card.

        The weights are those in memory, in their precision. Raises :class:`OutputError` where the
        directory cannot be written or holds the files that this embedder reads or the layers of
        a hybrid one, and :class:`UnsupportedFeatureError` for an embedder of chosen ``layers``.
        """
        save_embedder(self, directory)
