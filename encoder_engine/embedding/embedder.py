"""Texts in, vectors out: the tokenizer, the encoder and the pooling of one model directory.

How it works: a stream of texts is cut into windows of 4,096 texts or 16 million characters, so that
memory is constant. The texts of a window are tokenized by all threads, sorted by length and grouped
into batches of at most ``batch_tokens`` tokens; a batch is packed, encoded and pooled without
padding, and its vectors are written at the rows of their texts. ``steps/window.py`` is that loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from encoder_engine.embedding.engines.choosing import EngineRequest, torch_engine
from encoder_engine.embedding.jobs.dense import DenseJob
from encoder_engine.embedding.library_keywords import naming, resolve_output
from encoder_engine.embedding.loading import load_parts
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.queries import DenseMethods
from encoder_engine.embedding.saving.sentence_directory import save_embedder
from encoder_engine.embedding.steps.long_texts import embed_long
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.token_vectors import embed_tokens
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import EmbeddedWindow, embed_windows
from encoder_engine.families.checkpoints.files import fetching, resolve_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.embedding.dataset.job import OnError
    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.engines.engine import EngineChoice
    from encoder_engine.embedding.library_keywords import LibraryKeywords
    from encoder_engine.embedding.options import EncodeKeywords, OnTruncation
    from encoder_engine.embedding.steps.layers import Layers
    from encoder_engine.embedding.steps.long_texts import ChunkPooling
    from encoder_engine.embedding.steps.token_vectors import TokenVectors
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inputs.opening import Format
    from encoder_engine.vectors.manifest import ShardFormat
    from encoder_engine.vectors.precision import Precision

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

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        normalize_embeddings: bool | None = ...,
        truncate_dim: int | None = ...,
        precision: Precision = ...,
        batch_tokens: int | None = ...,
        show_progress_bar: bool = ...,
        output: Literal["numpy"] = ...,
        *,
        on_truncation: OnTruncation = ...,
        batch_size: int | None = ...,
        convert_to_tensor: Literal[False] = ...,
        **library: Unpack[LibraryKeywords],
    ) -> Array: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        normalize_embeddings: bool | None = ...,
        truncate_dim: int | None = ...,
        precision: Precision = ...,
        batch_tokens: int | None = ...,
        show_progress_bar: bool = ...,
        *,
        output: Literal["torch"],
        on_truncation: OnTruncation = ...,
        batch_size: int | None = ...,
        convert_to_tensor: bool = ...,
        **library: Unpack[LibraryKeywords],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        prompt: str | None = ...,
        prompt_name: str | None = ...,
        normalize_embeddings: bool | None = ...,
        truncate_dim: int | None = ...,
        precision: Precision = ...,
        batch_tokens: int | None = ...,
        show_progress_bar: bool = ...,
        *,
        on_truncation: OnTruncation = ...,
        batch_size: int | None = ...,
        convert_to_tensor: Literal[True],
        **library: Unpack[LibraryKeywords],
    ) -> Tensor: ...

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
        show_progress_bar: bool = False,
        output: Literal["numpy", "torch"] = "numpy",
        *,
        on_truncation: OnTruncation = "warn",
        batch_size: int | None = None,
        convert_to_tensor: bool = False,
        **library: Unpack[LibraryKeywords],
    ) -> Array | Tensor:
        """Embed texts: one vector each, in the order given, [N, D]; [D] for a single ``str``.

        A text's vector does not depend on the texts beside it, nor on ``batch_tokens``.

        prompt, prompt_name: a text, or the name of the directory's, put before every text.
        normalize_embeddings: True scales vectors to length 1, False leaves them as pooled; None:
            the directory's setting.
        truncate_dim: keeps the leading features; normalized vectors are normalized after the cut.
        precision: see :func:`quantize_vectors`.
        batch_tokens: the most tokens of a batch.
        output: ``"numpy"``, or ``"torch"`` for a tensor on the CPU.
        on_truncation: texts longer than ``max_seq_length`` are truncated: ``"warn"`` issues one
            :class:`TruncationWarning`, ``"ignore"`` none, ``"error"`` raises
            :class:`SequenceLengthError`.
        batch_size: the most texts of a batch.
        convert_to_tensor: ``output="torch"``, as sentence-transformers calls it.
        library: other keywords of sentence-transformers, see :class:`LibraryKeywords`; a value with
            another meaning than the default raises :class:`InputError` that names the method.

        Raises :class:`TextError` with the row of a value that is not a text, :class:`InputError`
        for invalid options, and :class:`NonFiniteVectorError` for a vector with NaN or infinity.
        """
        output = resolve_output(
            *("encode", library),
            output=output,
            convert_to_tensor=convert_to_tensor,
            device=self.engine.device,
        )
        if output == "torch":
            torch_engine("output='torch'")
        options = self.resolve(
            EncodeCall(
                prompt=prompt,
                prompt_name=prompt_name,
                normalize_embeddings=normalize_embeddings,
                truncate_dim=truncate_dim,
                precision=precision,
                batch_tokens=batch_tokens,
                batch_size=batch_size,
                on_truncation=on_truncation,
            )
        )
        opened, notice = open_texts(texts), TruncationNotice.of(self, on_truncation)
        parts = [self.no_vectors(options)]
        with progress_bar(opened.count, shown=bool(show_progress_bar)) as advance:
            for window in embed_windows(self, opened.rows, options, notice):
                parts.append(window.vectors)
                advance(len(window.vectors))
        notice.warn()
        vectors = parts[1] if len(parts) == 2 else np.concatenate(parts)
        if opened.single:
            vectors = vectors[0]
        if output == "numpy":
            return vectors
        tensor: Tensor = torch_engine("output='torch'").as_tensor(vectors)
        return tensor

    def encode_windows(
        self,
        texts: Iterable[str],
        *,
        on_truncation: Literal["ignore", "error"] = "ignore",
        **options: Unpack[EncodeKeywords],
    ) -> Iterator[EmbeddedWindow]:
        """Embed a stream of any length in constant memory, 4,096 texts at a time.

        Windows come in the order of the texts, with their counts of tokens and truncated texts and
        the seconds spent. Options are checked at once. Options and exceptions: see :meth:`encode`.
        """
        resolved = self.resolve(EncodeCall.of("encode_windows", options, on_truncation))
        notice = TruncationNotice.of(self, on_truncation)
        return embed_windows(self, open_texts(texts).rows, resolved, notice)

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

    def encode_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        column: str | None = None,
        id_column: str | None = None,
        input_format: Format | None = None,
        on_error: OnError = "fail",
        max_characters: int | None = None,
        unique_ids: bool = False,
        shard_rows: int | None = None,
        shard_format: ShardFormat | None = None,
        keep: Sequence[str] = (),
        append: bool = False,
        delete_missing: bool = False,
        overwrite: bool = False,
        workers: int = 1,
        staging: str | os.PathLike[str] | None = None,
        on_truncation: Literal["ignore", "error"] = "ignore",
        **options: Unpack[EncodeKeywords],
    ) -> DatasetSummary:
        """Embed files of any size into a file, or a folder of shards, in constant memory.

        ``encoder-engine embed`` calls this method. A second call resumes after the last finished
        shard of a folder. Its rows are those of one uninterrupted run; with ``shard_rows``, its
        bytes are too. Raises :class:`ResumeError` for another model, other options or changed
        inputs. :func:`load_vectors` reads the output.

        inputs: files, directories, globs, or ``"-"`` for standard input; addresses (``s3://``,
            ``gs://``, ``hf://``, ``https://``) by fsspec.
        output: a file; a folder if it has no suffix, is a directory, or a shard option is given;
            or the address of a folder, with ``staging``.
        staging: the local folder in which a run with an address writes and resumes; it is copied
            when it is complete, the manifest last.
        shard_rows: rows of a shard; None: 100,000, or as many as 45 seconds take.
        shard_format: ``"npy"``, ``"parquet"``, ``"arrow"`` or ``"lance"``.
        on_error: ``"skip"`` lists bad rows in a file of their own; ``"fail"`` raises
            :class:`RowError`.
        max_characters: a longer text is a bad row.
        unique_ids: a repeated id makes a bad row.
        keep: columns of the inputs to write beside the vectors, of a table; :func:`load_vectors`
            and ``encoder-engine search`` give them.
        append: embed what is new since the folder was finished. Rows of known ids whose text has
            changed are replaced; without ids, rows are known by their file and their text.
        delete_missing: with ``append``, drop the rows that the inputs hold no longer.
        workers: processes, each with its own GPU where GPUs are used.
        options: those of :meth:`encode`.
        """
        # Readers, stores and processes: an embedder without them is imported in half the time.
        from encoder_engine.embedding.dataset.job import DatasetOptions, open_job
        from encoder_engine.embedding.dataset.run import run_job

        dataset_options = DatasetOptions(
            column=column,
            id_column=id_column,
            input_format=input_format,
            on_error=on_error,
            max_characters=max_characters,
            unique_ids=unique_ids,
            shard_rows=shard_rows,
            shard_format=shard_format,
            keep=keep,
            append=append,
            delete_missing=delete_missing,
            overwrite=overwrite,
            workers=workers,
            staging=staging,
            encode=EncodeCall.of("encode_dataset", options, on_truncation),
        )
        return run_job(open_job(inputs, output, dataset_options), self)
