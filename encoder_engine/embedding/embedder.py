"""Texts in, vectors out: the tokenizer, the encoder and the pooling of one model directory."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch

from encoder_engine.embedding.directory.recipe import Recipe, read_recipe, read_tokenizer
from encoder_engine.embedding.loading import Loading
from encoder_engine.embedding.options import (
    EncodeOptions,
    OnTruncation,
    check_options,
    resolve_batch_tokens,
    resolve_dimension,
    resolve_prompt,
)
from encoder_engine.embedding.steps.batching import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.steps.layers import layer_weights
from encoder_engine.embedding.steps.pooling import normalize
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import warn_of_truncation
from encoder_engine.embedding.steps.window import EmbeddedWindow, embed_windows
from encoder_engine.errors import (
    ConfigError,
    DefaultPoolingWarning,
    InputError,
    MissingPoolerWarning,
)
from encoder_engine.models import Encoder
from encoder_engine.models.checkpoints.loading import resolve_directory
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from encoder_engine.embedding.dataset.job import OnError
    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.steps.layers import Layers
    from encoder_engine.embedding.steps.long_texts import ChunkPooling
    from encoder_engine.embedding.steps.token_vectors import TokenVectors
    from encoder_engine.inputs.sources import Format
    from encoder_engine.text import Tokenizer
    from encoder_engine.vectors.manifest import ShardFormat
    from encoder_engine.vectors.precision import Precision

__all__ = ["Embedder"]

Array = np.ndarray[Any, np.dtype[Any]]


class Embedder:
    """Turns texts into vectors as sentence-transformers would with the same directory.

    Safe to call from several threads: a call changes nothing but what it returns, except that it
    puts the encoder into evaluation mode.

    ``encoder``, ``tokenizer`` and ``recipe`` must belong together: raises :class:`ConfigError`
    where a token id would lie outside the encoder's vocabulary, where the pooling was made for
    another width, or where the limit leaves no room for a token.
    """

    def __init__(self, encoder: Encoder, tokenizer: Tokenizer, recipe: Recipe) -> None:
        spec = encoder.spec
        if recipe.pooling_width not in (None, spec.width):
            raise ConfigError(
                f"the pooling expects vectors of {recipe.pooling_width} features, "
                f"the encoder computes {spec.width}; the files belong to different models"
            )
        if tokenizer.vocab_size > spec.embedding.vocab_size:
            raise ConfigError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder's table "
                f"{spec.embedding.vocab_size}; the files belong to different models"
            )
        self.encoder = encoder.eval()
        self.tokenizer = tokenizer
        self.recipe = recipe
        # How to load the same again; None where it was put together in memory.
        self.loading: Loading | None = None
        self.memory_limit = MemoryLimit()
        limits = [n for n in (recipe.max_seq_length, spec.max_length) if n is not None]
        self._max_seq_length = min(limits) if limits else None
        if limits and min(limits) < self._least_length():
            raise ConfigError(
                f"{recipe.encoder_directory} limits texts to {min(limits)} tokens, which leaves no "
                f"room for one beside the special tokens; it takes {self._least_length()}. "
                "Mend the file, or pass max_seq_length="
            )

    def __repr__(self) -> str:
        """Say which model this is, and where and how it computes."""
        encoder = self.encoder
        return (
            f"Embedder({self.recipe.encoder_directory}: {encoder.spec.model_type}, "
            f"{encoder.spec.width} features, max_seq_length={self.max_seq_length}, "
            f"{encoder.quantization or encoder.dtype} on {encoder.device})"
        )

    @classmethod
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
    ) -> Self:
        """Load a sentence-transformers directory, or a plain transformers one with mean pooling.

        ``pooling`` names the mode or modes (``"mean"``, ``"cls"``, ...) instead of what the
        directory says; without either, the mean is taken with a :class:`DefaultPoolingWarning`.
        ``max_seq_length`` replaces the directory's limit. ``layers`` are pooled instead of the
        last: the mean of those listed (``[-4, -3, -2, -1]``; 0 are the embeddings), or their sum by
        the weights they are mapped to, as :class:`ScalarMix` learns them. Raises
        :class:`ConfigError`, :class:`CheckpointError` or :class:`TokenizerFileError` for files that
        do not add up.
        """
        directory = resolve_directory(path_or_hub_id)
        recipe = read_recipe(directory, _pooling_names(pooling))
        tokenizer = read_tokenizer(recipe.encoder_directory, lowercase=recipe.lowercase)
        with warnings.catch_warnings():
            # Pooling reads the token vectors, never the pooler's.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            encoder = Encoder.from_pretrained(
                recipe.encoder_directory, device=device, dtype=dtype, quantization=quantization
            )
        if encoder.packable:
            encoder.pack()
        if layers is not None:
            recipe = replace(recipe, layers=layer_weights(layers, encoder.spec.num_layers))
        if max_seq_length is None:
            embedder = cls(encoder, tokenizer, recipe)
        else:
            embedder = cls(encoder, tokenizer, replace(recipe, max_seq_length=None))
            embedder.recipe = recipe
            embedder.max_seq_length = max_seq_length
        embedder.loading = Loading(
            path=str(directory),
            dtype=str(dtype).removeprefix("torch."),
            quantization=quantization,
            pooling=_pooling_names(pooling),
            max_seq_length=max_seq_length,
            layers=recipe.layers,
        )
        if recipe.default_pooling:
            warnings.warn(
                DefaultPoolingWarning(
                    f"{directory} has no modules.json to say how tokens are pooled, so their mean "
                    "is taken; to choose another, pass pooling= (--pooling cls, mean, max, ...)"
                ),
                stacklevel=2,
            )
        return embedder

    @property
    def max_seq_length(self) -> int | None:
        """Tokens kept of each text, special tokens included; None: no limit."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        limit, least = self.encoder.spec.max_length, self._least_length()
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"max_seq_length must be a whole number of at least {least}, got {value!r}"
            )
        if limit is not None and value > limit:
            raise InputError(f"max_seq_length is {value}, the model can place {limit} tokens")
        self._max_seq_length = value

    def _least_length(self) -> int:
        """Count the special tokens around a text, and one for the text."""
        return len(self.tokenizer.encode("")) + 1

    @property
    def dimension(self) -> int:
        """Features of a vector before ``truncate_dim``."""
        return self.encoder.spec.width * len(self.recipe.pooling)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.recipe.prompts

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
    ) -> Tensor: ...

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
    ) -> Array | Tensor:
        """Embed texts: one vector each, in the order given, [N, D]; [D] for a single ``str``.

        A text's vector does not depend on the texts beside it, nor on ``batch_tokens``.

        ``prompt`` or ``prompt_name`` is put before every text. ``normalize_embeddings`` True or
        False makes vectors of length 1 or leaves them as pooled; None does what the directory says.
        ``truncate_dim`` keeps the leading features and, if normalised, normalises those.
        ``precision``: see :func:`quantize_vectors`. ``output`` ``"torch"``: on the CPU.
        Texts longer than ``max_seq_length`` lose their tails: ``on_truncation`` says whether that
        is one :class:`TruncationWarning`, nothing, or a :class:`SequenceLengthError`.

        Raises :class:`TextError` naming the row of what is no text, :class:`InputError` for options
        that make no sense, :class:`NonFiniteVectorError` rather than return NaN.
        """
        if output not in ("numpy", "torch"):
            raise InputError(f"output must be 'numpy' or 'torch', got {output!r}")
        options = self.resolve_options(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            precision=precision,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        opened = open_texts(texts)
        parts: list[Array] = []
        num_texts = num_truncated = 0
        with progress_bar(opened.count, shown=show_progress_bar) as advance:
            for window in embed_windows(self, opened.rows, options):
                parts.append(window.vectors)
                num_texts += len(window.vectors)
                num_truncated += window.num_truncated
                advance(len(window.vectors))
        if num_truncated and on_truncation == "warn":
            warn_of_truncation(self, num_truncated, num_texts)
        vectors = np.concatenate(parts) if parts else self._no_vectors(options)
        if opened.single:
            vectors = vectors[0]
        return vectors if output == "numpy" else torch.from_numpy(vectors)

    def encode_windows(
        self,
        texts: Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
        on_truncation: Literal["ignore", "error"] = "ignore",
    ) -> Iterator[EmbeddedWindow]:
        """Embed a stream of any length in constant memory: a few thousand texts at a time.

        Options as in :meth:`encode`, checked at once; the windows come in the order of the texts
        and carry their counts of tokens and truncated texts, and the seconds spent.
        """
        options = self.resolve_options(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            precision=precision,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return embed_windows(self, open_texts(texts).rows, options)

    def encode_long(
        self,
        texts: str | Iterable[str],
        *,
        overlap: int | None = None,
        chunk_pooling: ChunkPooling = "mean",
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
    ) -> Array:
        """Embed texts of any length: one vector each, [N, D]; [D] for a single ``str``.

        A text of more than ``max_seq_length`` tokens is cut into chunks of that many, special
        tokens and prompt around each, of which each shares ``overlap`` tokens with the one before
        (None: an eighth). The vector is the mean of theirs, their ``"weighted"`` mean by tokens, or
        their ``"max"``, normalised where they are. A text that is not cut has the vector of
        :meth:`encode`, whose options the others are, and so is what is raised.
        """
        from encoder_engine.embedding.steps.long_texts import embed_long

        options = self.resolve_options(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            precision=precision,
            batch_tokens=batch_tokens,
            on_truncation="ignore",
        )
        return embed_long(self, texts, options, overlap=overlap, chunk_pooling=chunk_pooling)

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
        """Embed every token, special ones and the prompt's included, without pooling.

        Of :class:`TokenVectors` ``found[i]`` are text i's, float32 [n, D]. Options as in
        :meth:`encode`, and so is what is raised.
        """
        from encoder_engine.embedding.steps.token_vectors import embed_tokens

        options = self.resolve_options(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=None,
            precision="float32",
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return embed_tokens(
            *(self, texts, options),
            transform=normalize if normalize_embeddings else torch.Tensor.contiguous,
            width=self.encoder.spec.width,
        )

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
        overwrite: bool = False,
        workers: int = 1,
        prompt: str | None = None,
        prompt_name: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
        on_truncation: Literal["ignore", "error"] = "ignore",
    ) -> DatasetSummary:
        """Embed files of any size into a file, or a folder of shards, in constant memory.

        What ``encoder-engine embed`` does. ``inputs``: files, directories, globs, or ``"-"`` for
        standard input; ``output``: a file, or a folder if it has no ending, exists as one, or
        shards were asked for (``shard_rows`` of them in each; None: 100,000, or as many as 45
        seconds take; ``shard_format`` ``"npy"``, ``"parquet"``, ``"arrow"`` or ``"lance"``). Called
        again, it goes on after the last whole shard of a folder, to the same rows, and with
        ``shard_rows`` to the same bytes; with another model, other options or changed inputs it is
        refused with a :class:`ResumeError`. :func:`load_vectors` reads what it wrote.

        ``on_error`` ``"skip"`` lists bad rows in a file beside instead of raising a
        :class:`RowError`; texts of more than ``max_characters`` are such rows, and ids that came
        before where ``unique_ids``. ``workers``: processes, a GPU each where used. The other
        options are those of :meth:`encode`.
        """
        from encoder_engine.embedding.dataset.job import DatasetOptions, EncodeCall, open_job
        from encoder_engine.embedding.dataset.run import run_job

        call = EncodeCall(
            prompt=prompt,
            prompt_name=prompt_name,
            normalize_embeddings=normalize_embeddings,
            truncate_dim=truncate_dim,
            precision=precision,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        options = DatasetOptions(
            column=column,
            id_column=id_column,
            input_format=input_format,
            on_error=on_error,
            max_characters=max_characters,
            unique_ids=unique_ids,
            shard_rows=shard_rows,
            shard_format=shard_format,
            overwrite=overwrite,
            workers=workers,
            encode=call,
        )
        return run_job(open_job(inputs, output, options), self)

    def resolve_options(
        self,
        *,
        prompt: str | None,
        prompt_name: str | None,
        normalize_embeddings: bool | None,
        truncate_dim: int | None,
        precision: Precision,
        batch_tokens: int | None,
        on_truncation: OnTruncation,
    ) -> EncodeOptions:
        """Check the options of a call and fill in what the directory says."""
        recipe = self.recipe
        prefix = resolve_prompt(prompt, prompt_name, recipe.prompts, recipe.default_prompt_name)
        encoder = self.encoder
        default_tokens = default_batch_tokens(encoder.spec, encoder.device, encoder.dtype)
        normalized = recipe.normalized if normalize_embeddings is None else normalize_embeddings
        return check_options(
            EncodeOptions(
                prompt=prefix,
                num_prompt_tokens=self._count_prompt_tokens(prefix),
                normalized=normalized,
                dimension=resolve_dimension(truncate_dim, recipe.truncate_dim, self.dimension),
                precision=precision,
                batch_tokens=resolve_batch_tokens(batch_tokens, default_tokens),
                on_truncation=on_truncation,
            )
        )

    def _count_prompt_tokens(self, prompt: str) -> int:
        """Count the tokens to leave out of the pooling: the prompt's, with what opens a text."""
        if not prompt or self.recipe.include_prompt:
            return 0
        ids = self.tokenizer.encode(prompt)
        around = self.tokenizer.encode("")
        closed = len(around) > 0 and ids[-1] == around[-1]
        if self._max_seq_length is not None and len(ids) >= self._max_seq_length:
            raise InputError(
                f"the prompt has {len(ids)} tokens and leaves no room for a text: "
                f"the limit is {self._max_seq_length}"
            )
        return len(ids) - int(closed)

    def stored_dimension(self, options: EncodeOptions) -> int:
        """Count the numbers of a vector as it is stored: features, or bytes of bits."""
        return int(self._no_vectors(options).shape[1])

    def _no_vectors(self, options: EncodeOptions) -> Array:
        return quantize_vectors(np.zeros((0, options.dimension), np.float32), options.precision)


def _pooling_names(pooling: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if pooling is None:
        return None
    return (pooling,) if isinstance(pooling, str) else tuple(pooling)
