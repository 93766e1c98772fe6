"""The methods that embedders share: for queries, documents, files, and under libraries' names."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np

from encoder_engine.embedding.library_keywords import (
    LibraryKeywords,
    check_names,
    naming,
    resolve_output,
)
from encoder_engine.engine.choosing import torch_engine
from encoder_engine.jobs.keywords import JobKeywords, run_over_files
from encoder_engine.kinds.model import Model
from encoder_engine.kinds.options import EncodeKeywords, document_prompt, query_prompt
from encoder_engine.kinds.texts import open_texts
from encoder_engine.vectors.similarity import (
    check_similarity,
    pairwise_similarities,
    similarities,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

    from torch import Tensor

    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.options import OnTruncation
    from encoder_engine.kinds.windows import EmbeddedWindow
    from encoder_engine.vectors.precision import Precision
    from encoder_engine.vectors.similarity import Similarity

__all__ = ["DenseMethods", "QueryMethods", "TaskMethods"]

Array = np.ndarray[Any, np.dtype[Any]]


class _EmbedderType(ABCMeta):
    """The metaclass of embedders, whose ``repr`` names sentence_transformers.

    KeyBERT and BERTopic judge a model by the ``repr`` of its type: for an unknown type they
    silently load their default model, for one that names sentence_transformers they raise an error.
    """

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', called as sentence_transformers>"


class QueryMethods(Model, metaclass=_EmbedderType):
    """The base of embedders: methods that apply the prompts of queries and of documents."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of features of a vector."""

    @abstractmethod
    def encode(self, texts: str | Iterable[str], *arguments: Any, **options: Any) -> Any:
        """Embed texts, with the directory's default prompt unless one is given."""

    def __call__(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed texts: :meth:`encode`."""
        return self.encode(texts, **options)

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` with the prompt ``query`` unless one is given."""
        return self.encode(texts, **_with_prompt(options, query_prompt(self.prompts)))

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` with the prompt ``document`` unless one is given.

        As in sentence-transformers, the prompt is empty where the directory does not state one.
        """
        return self.encode(texts, **_with_prompt(options, document_prompt(self.prompts)))

    def get_embedding_dimension(self) -> int:
        """Return :attr:`dimension`, under its name in sentence-transformers."""
        return self.dimension

    # The former name in sentence-transformers.
    get_sentence_embedding_dimension = get_embedding_dimension


class TaskMethods(QueryMethods):
    """The methods of an embedder whose ``encode`` has the parameter ``task``: query or document."""

    @naming("texts")
    def encode_query(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode` as queries, with their prompt unless one is given."""
        return super().encode_query(texts, **({"task": "query"} | options))

    @naming("texts")
    def encode_document(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode` as documents, with their prompt unless one is given."""
        return super().encode_document(texts, **({"task": "document"} | options))

    @naming("texts")
    def encode_queries(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed queries: :meth:`encode_query`, as late-interaction libraries call it."""
        return self.encode_query(texts, **options)

    @naming("texts")
    def encode_documents(self, texts: str | Iterable[str], **options: Any) -> Any:
        """Embed documents: :meth:`encode_document`, as late-interaction libraries call it."""
        return self.encode_document(texts, **options)


class DatasetKeywords(EncodeKeywords, JobKeywords, total=False):
    """The keywords of :meth:`Embedder.encode_dataset`."""


class TensorKeywords(EncodeKeywords, LibraryKeywords, total=False):
    """The keywords of :meth:`Embedder.encode` in calls that return a tensor.

    They are all keywords except ``output`` and ``convert_to_tensor``, by which a call requests it.
    """

    show_progress_bar: bool
    on_truncation: OnTruncation | None


class DenseMethods(QueryMethods):
    """The methods of an embedder that makes one vector of each text.

    default_truncation: the ``on_truncation`` of calls of :meth:`encode` that do not give one.
    """

    default_truncation: ClassVar[OnTruncation] = "warn"

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
        on_truncation: OnTruncation | None = ...,
        batch_size: int | None = ...,
        convert_to_tensor: Literal[False] = ...,
        **library: Unpack[LibraryKeywords],
    ) -> Array: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        output: Literal["torch"],
        **options: Unpack[TensorKeywords],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        convert_to_tensor: Literal[True],
        **options: Unpack[TensorKeywords],
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
        on_truncation: OnTruncation | None = None,
        batch_size: int | None = None,
        convert_to_tensor: bool = False,
        **library: Unpack[LibraryKeywords],
    ) -> Array | Tensor:
        """Embed texts: one vector each, in the order given, [N, D]; [D] for a single ``str``.

        A text's vector does not depend on the other texts of the call, nor on ``batch_tokens``.

        prompt: a string that is put before every text.
        prompt_name: instead of ``prompt``, the name of one of the directory's prompts.
        normalize_embeddings: True scales vectors to length 1, False leaves them as pooled; None:
            the directory's setting.
        truncate_dim: the number of leading features to keep; vectors that are normalized are
            normalized afterwards.
        precision: see :func:`quantize_vectors`.
        batch_tokens: the most tokens of a batch.
        show_progress_bar: draw a bar on standard error, if that is a terminal.
        output: ``"numpy"``, or ``"torch"`` for a tensor on the CPU.
        on_truncation: texts longer than ``max_seq_length`` are truncated: ``"warn"`` issues one
            :class:`TruncationWarning`, ``"ignore"`` none, ``"error"`` raises
            :class:`SequenceLengthError`. None: :attr:`default_truncation`.
        batch_size: the most texts of a batch.
        convert_to_tensor: the same as ``output="torch"``, as named by sentence-transformers.
        library: other keywords of sentence-transformers, see :class:`LibraryKeywords`; a value that
            requests another result raises :class:`InputError`, which names the method to call.

        Raises :class:`TextError` with the row of a value that is not a text, :class:`InputError`
        for invalid options, and :class:`NonFiniteVectorError` for a vector with NaN or infinity.
        """
        output = resolve_output(
            "encode",
            library,
            output=output,
            convert_to_tensor=convert_to_tensor,
            device=self.engine.device,
        )
        if output == "torch":
            torch_engine("output='torch'")
        kind, opened = self.kind, open_texts(texts)
        options = kind.resolve(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            precision=precision,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            on_truncation=on_truncation or self.default_truncation,
        )
        shown = bool(show_progress_bar)
        vectors: Array = kind.collect(opened.rows, options, count=opened.count, shown=shown)
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
        """Embed a stream of any length in constant memory, up to 4,096 texts at a time.

        Windows are in the order of the texts; each has counts of tokens and truncated texts and the
        seconds spent. Options are validated before the first window. Options and exceptions: see
        :meth:`encode`.
        """
        check_names("encode_windows", options, EncodeKeywords)
        resolved = self.kind.resolve(on_truncation=on_truncation, **options)
        return self.kind.stream(open_texts(texts).rows, resolved)

    def encode_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        **options: Unpack[DatasetKeywords],
    ) -> DatasetSummary:
        """Embed files of any size into a file, or a folder of shards, in constant memory.

        ``encoder-engine embed`` calls this method. A second call resumes after the last finished
        shard of a folder. The folder's rows are those of one uninterrupted run; with
        ``shard_rows``, its bytes are too. Raises :class:`ResumeError` for another model, other
        options or changed inputs. :func:`load_vectors` reads the output.

        inputs: files, directories, globs, or ``"-"`` for standard input; addresses (``s3://``,
            ``gs://``, ``hf://``, ``https://``) by fsspec.
        output: a file; a folder if it has no suffix, is a directory, or a shard option is given;
            or the address of a folder, with ``staging``.
        staging: the local folder in which a run with an address writes and resumes; it is copied
            when it is complete, the manifest last.
        shard_rows: rows of a shard; None: a shard ends after 100,000 rows or 45 seconds, whichever
            comes first.
        shard_format: ``"npy"``, ``"parquet"``, ``"arrow"`` or ``"lance"``.
        on_error: ``"skip"`` leaves bad rows out and lists them in a separate file; ``"fail"``
            raises :class:`RowError`.
        max_characters: the most characters of a text; a row with more is bad.
        unique_ids: a row with a repeated id is bad.
        keep: columns of the inputs to write beside the vectors, into tables; :func:`load_vectors`
            and ``encoder-engine search`` return them.
        append: embed only rows that are new since the folder was finished. Rows of known ids whose
            text has changed are replaced; without ids, rows are recognised by their file and their
            text.
        delete_missing: with ``append``, drop the rows that the inputs no longer contain.
        workers: processes, each with its own GPU where GPUs are used.
        options: those of :meth:`encode`. Without a prompt, the directory's prompt ``document``, or
            if that is empty its default prompt, is put before every text.
        """
        check_names("encode_dataset", options, DatasetKeywords)
        return run_over_files(self.kind, inputs, output, options)

    @property
    @abstractmethod
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states, if any."""

    @property
    def similarity_fn_name(self) -> Similarity:
        """The similarity of :meth:`similarity`: the directory's, or cosine."""
        return check_similarity(self.stated_similarity)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return the vectors of :meth:`encode_document` as lists, for LangChain."""
        vectors: list[list[float]] = np.atleast_2d(self.encode_document(texts)).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of :meth:`encode_query` as a list, for LangChain."""
        vector: list[float] = self.encode_query(text).tolist()
        return vector

    def similarity(self, first: object, second: object) -> Array:
        """Compare all vectors of ``first`` with all of ``second``: float32 [N, M].

        The similarity is the directory's, cosine where it states none; see :func:`similarities`.
        """
        return similarities(first, second, self.similarity_fn_name)

    def similarity_pairwise(self, first: object, second: object) -> Array:
        """Compare each vector with the one in the same row: float32 [N]; see :meth:`similarity`."""
        return pairwise_similarities(first, second, self.similarity_fn_name)


def _with_prompt(options: dict[str, Any], name: str | None) -> dict[str, Any]:
    """Return the options of a call with a prompt's name added, unless they have a prompt."""
    if options.get("prompt") is None and options.get("prompt_name") is None:
        return {**options, "prompt_name": name}
    return options
