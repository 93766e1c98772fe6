"""Static embeddings: tokenize, look up, average. No encoder runs, and no PyTorch.

How it works: a window of 4,096 texts is tokenized by all threads into packed ids. One native call
then adds the table's rows of each text, divides by their number and normalizes. The table stays the
pages of its file, in the dtype in which it was published; numbers are widened in registers. Rows of
a text are prefetched while its ids are read, since a table of 30,000 rows does not fit into a
core's cache.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.jobs.pickling import PickledModel
from encoder_engine.embedding.options import (
    EncodeCall,
    EncodeOptions,
    check_options,
    check_positive,
    resolve_dimension,
    resolve_prompt,
)
from encoder_engine.embedding.parts import Loading
from encoder_engine.embedding.queries import DenseMethods
from encoder_engine.embedding.static.distilling import distill_model
from encoder_engine.embedding.static.model import median_token_length, unknown_id
from encoder_engine.embedding.static.parts import Coverage, StaticEngine, TokenizedTexts
from encoder_engine.embedding.static.reading import read_static_model
from encoder_engine.embedding.static.saving import save_static_model
from encoder_engine.embedding.static.word_vectors import read_word_vectors
from encoder_engine.embedding.steps.batching import windows
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import EmbeddedWindow, located_error
from encoder_engine.errors import InputError, TextError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.inference.options import check_threads
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Unpack

    from encoder_engine.embedding.options import OnTruncation
    from encoder_engine.embedding.static.model import Rules, StaticModel
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.text import Tokenizer

__all__ = ["Coverage", "StaticEmbedder", "StaticEngine"]

Array = np.ndarray[Any, np.dtype[Any]]


class StaticEmbedder(PickledModel, DenseMethods):
    """Turns texts into vectors as model2vec or sentence-transformers would with the same directory.

    It is safe to call from several threads. A text without a known token has the vector 0. Vectors
    are float32, also of tables of fewer bits; ``batch_tokens`` and ``batch_size`` change nothing.
    """

    engine: StaticEngine
    default_truncation = "ignore"

    def __init__(self, model: StaticModel, *, num_threads: int | None = None) -> None:
        self.model = model
        self.engine = StaticEngine(model=model, num_threads=check_threads(num_threads))
        self._loading: Loading | None = None
        self._name = model.settings.base_model or "memory"
        self._cut = self._most_characters()

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        *,
        max_length: int | Literal["stated"] | None = "stated",
        rules: Rules | None = None,
        num_threads: int | None = None,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a directory of model2vec, or one of sentence-transformers with a StaticEmbedding.

        The table keeps its dtype, float32, float16, bfloat16 or int8, and stays the file's pages.

        max_length: tokens kept of a text, None: all. ``"stated"``: the directory's.
        rules: ``"model2vec"`` leaves unknown tokens out, keeps 512 tokens unless config.json says
            otherwise, and first cuts a text to that many times the median length of a token.
            ``"sentence-transformers"`` keeps unknown tokens, and cuts where tokenizer.json says so.
            None: the former if config.json states the ``model_type`` model2vec.
        num_threads: the threads of a call; None: those that the process may use.
        hub: see :class:`HubKeywords`.

        Raises :class:`ConfigError`, :class:`CheckpointError` or :class:`TokenizerFileError` for
        missing, malformed or contradictory files.
        """
        directory = resolve_directory(path_or_hub_id, **hub)
        stated = max_length == "stated"
        limit = None
        if not stated and max_length is not None:
            limit = check_positive(max_length, "max_length")
        model = read_static_model(
            directory, rules=rules, max_length=limit, unlimited=not stated and limit is None
        )
        embedder = cls(model, num_threads=num_threads)
        embedder._name = str(directory)
        embedder._loading = Loading(path=str(directory), options={"rules": rules})
        return embedder

    @classmethod
    def from_word_vectors(
        cls,
        path: str | os.PathLike[str],
        *,
        lowercase: bool | None = None,
        max_words: int | None = None,
        normalize: bool = False,
        num_threads: int | None = None,
    ) -> Self:
        """Read a text file of word2vec, GloVe or fastText: a word and its numbers in each line.

        The first line may state the number of words and of features. Texts are cut into words at
        white space and around punctuation, as BERT does. Words that the file lacks are left out;
        :meth:`coverage` counts them. A file may be compressed.

        lowercase: lower-cases texts; None: where no word of the file has an upper-case letter.
        max_words: reads the first so many words, the most frequent ones.
        normalize: vectors of texts have length 1.

        Raises :class:`RowError` with the line that cannot be read.
        """
        model = read_word_vectors(
            path, lowercase=lowercase, max_words=max_words, normalize=normalize
        )
        embedder = cls(model, num_threads=num_threads)
        embedder._name = str(path)
        return embedder

    @classmethod
    @fetching
    def distill(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        *,
        dimension: int | None = 256,
        sif_coefficient: float | None = 1e-4,
        pooling: str = "mean",
        remove_tokens: str | None = r"\[unused\d+\]",
        device: str = "auto",
        num_threads: int | None = None,
        show_progress_bar: bool = False,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Make a table from an encoder's vocabulary, as model2vec does (Tulkens and van Dongen).

        Each token goes through the encoder alone, between the special tokens, and is pooled. The
        vectors are projected to their principal components. A token's vector is multiplied by
        ``a / (a + p)``, where p is its probability by Zipf's law: tokens stand in the order of
        their frequency.

        dimension: principal components to keep; None: no projection.
        sif_coefficient: a; None: no weights.
        pooling: of the tokens' states, ``"mean"``, ``"cls"`` or ``"lasttoken"``.
        remove_tokens: a regular expression of tokens to leave out of a WordPiece vocabulary.

        Exceptions: see :meth:`Embedder.from_pretrained`.
        """
        directory = resolve_directory(path_or_hub_id, **hub)
        # A directory in the hub's cache bears the name of a revision.
        base = None if directory == Path(path_or_hub_id) else str(path_or_hub_id)
        model = distill_model(
            directory,
            dimension=dimension,
            sif_coefficient=sif_coefficient,
            pooling=pooling,
            remove_tokens=remove_tokens,
            device=device,
            num_threads=num_threads,
            shown=show_progress_bar,
            base_model=base,
        )
        embedder = cls(model, num_threads=num_threads)
        embedder._name = str(path_or_hub_id)
        return embedder

    def __repr__(self) -> str:
        """Return a line with the size of the table, its dtype and the rules."""
        table, settings = self.model.table, self.model.settings
        return (
            f"StaticEmbedder({self._name}: {table.num_ids} tokens, {table.width} features in "
            f"{table.dtype}, max_seq_length={settings.max_length}, rules={settings.rules!r})"
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.model.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """Tokens kept of each text; None: all."""
        return self.model.settings.max_length

    @property
    def dimension(self) -> int:
        """Features of a vector before ``truncate_dim``."""
        return self.model.table.width

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.model.settings.prompts

    @property
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states; None: it states none."""
        return self.model.settings.similarity

    @property
    def name(self) -> str:
        """The path that the table was loaded from."""
        return self._name

    def _notice(self, on_truncation: OnTruncation) -> TruncationNotice:
        return TruncationNotice(on_truncation, limit=self.max_seq_length)

    def coverage(self, texts: str | Iterable[str]) -> Coverage:
        """Count the tokens of texts that the table has no vector for, and the texts of these alone.

        Only the rules of model2vec and tables of words leave unknown tokens out.
        """
        unknown = unknown_id(self.tokenizer)
        num_tokens = num_unknown = num_empty = 0
        for window in windows(open_texts(texts).rows, len):
            tokenized = self._tokenize(window, 0, "")
            encoding = tokenized.encoding
            is_unknown = encoding.ids == unknown
            before = np.concatenate([[0], np.cumsum(~is_unknown)])
            known = np.diff(before[encoding.cu_seqlens])
            num_tokens += len(encoding.ids)
            num_unknown += int(is_unknown.sum())
            num_empty += int((known == 0).sum())
        return Coverage(num_tokens=num_tokens, num_unknown=num_unknown, num_empty=num_empty)

    def save_pretrained(self, directory: str | os.PathLike[str], *, dtype: str = "auto") -> None:
        """Write a directory that model2vec, sentence-transformers and this class load.

        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"``, which model2vec rounds to
            127 steps of the largest number; ``"auto"`` keeps the table's. Raises
            :class:`OutputError` where the directory cannot be written.
        """
        save_static_model(self.model, directory, dtype=dtype)

    def resolve(self, call: EncodeCall) -> EncodeOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        settings, normalized = self.model.settings, call.normalize_embeddings
        if call.batch_tokens is not None:
            check_positive(call.batch_tokens, "batch_tokens")
        return check_options(
            EncodeOptions(
                prompt=resolve_prompt(
                    *(call.prompt, call.prompt_name),
                    *(settings.prompts, settings.default_prompt_name),
                ),
                num_prompt_tokens=0,
                normalized=settings.normalized if normalized is None else normalized,
                dimension=resolve_dimension(
                    call.truncate_dim, settings.truncate_dim, self.dimension
                ),
                precision=call.precision,
                batch_tokens=call.batch_tokens or 1,
                batch_size=call.batch_size,
                on_truncation=call.on_truncation,
            )
        )

    def stored_dimension(self, options: EncodeOptions) -> int:
        """Return the length of a stored vector: features, or bytes of packed bits."""
        return -(-options.dimension // 8) if "binary" in options.precision else options.dimension

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the rules."""
        return {"pooling": ["mean"], "layers": [], "rules": self.model.settings.rules}

    def describe_options(self, options: EncodeOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe()

    def tokenize_window(
        self, texts: list[str], first_row: int, options: EncodeOptions
    ) -> TokenizedTexts:
        """Tokenize a window of texts. Raises :class:`SequenceLengthError` if that is requested."""
        tokenized = self._tokenize(texts, first_row, options.prompt)
        notice = TruncationNotice(options.on_truncation, limit=self.max_seq_length)
        notice.observe(tokenized.truncated, first_row)
        return tokenized

    def encode_window(self, tokenized: TokenizedTexts, options: EncodeOptions) -> EmbeddedWindow:
        """Average the rows of a tokenized window."""
        start, encoding = time.perf_counter(), tokenized.encoding
        vectors = self.model.table.mean(
            *(encoding.ids, encoding.cu_seqlens),
            dimension=options.dimension,
            normalized=options.normalized,
            num_threads=self.engine.num_threads,
        )
        return EmbeddedWindow(
            vectors=quantize_vectors(vectors, options.precision),
            first_row=tokenized.first_row,
            truncated=tokenized.truncated,
            num_tokens=len(encoding.ids),
            num_padded_tokens=len(encoding.ids),
            tokenize_seconds=tokenized.seconds,
            encode_seconds=time.perf_counter() - start,
        )

    def reload(self) -> Callable[[str, int], StaticEmbedder] | None:
        """Return a function that loads the same table in another process; None without files."""
        if self._loading is None:
            return None
        return partial(_load_again, type(self), self._loading, self.model.settings.max_length)

    def _windows(
        self, texts: Iterator[str], options: EncodeOptions, notice: TruncationNotice
    ) -> Iterator[EmbeddedWindow]:
        first_row = 0
        for window in windows(texts, len):
            tokenized = self._tokenize(window, first_row, options.prompt)
            notice.observe(tokenized.truncated, first_row)
            yield self.encode_window(tokenized, options)
            first_row += len(window)

    def _tokenize(self, window: list[str], first_row: int, prompt: str) -> TokenizedTexts:
        start = time.perf_counter()
        texts = [prompt + text for text in window] if prompt else window
        cut = np.zeros(len(texts), dtype=np.bool_)
        if self._cut is not None:
            long = [row for row, text in enumerate(texts) if len(text) > self._cut]
            if long:
                cut[long] = True
                texts = [text[: self._cut] for text in texts]
        side: Any = "right" if self.model.settings.rules == "model2vec" else None
        try:
            encoding = self.tokenizer.encode_batch(
                texts,
                add_special_tokens=False,
                max_length=self.max_seq_length,
                num_threads=self.engine.num_threads,
                truncation_side=side,
            )
        except TextError as error:
            raise located_error(error, window, first_row) from None
        seconds = time.perf_counter() - start
        return TokenizedTexts(encoding=encoding, first_row=first_row, cut=cut, seconds=seconds)

    def _most_characters(self) -> int | None:
        """Return the most characters of a text that model2vec reads; None: no limit."""
        settings = self.model.settings
        if settings.rules != "model2vec" or settings.max_length is None:
            return None
        return settings.max_length * median_token_length(self.tokenizer)

    def with_max_length(self, max_length: int | None) -> Self:
        """Return an embedder of the same table that keeps so many tokens of a text; None: all."""
        if max_length is not None:
            check_positive(max_length, "max_length")
        settings = replace(self.model.settings, max_length=max_length)
        changed = type(self)(
            replace(self.model, settings=settings), num_threads=self.engine.num_threads
        )
        changed._name, changed._loading = self._name, self._loading
        return changed


def _load_again(
    kind: type[StaticEmbedder],
    loading: Loading,
    max_length: int | None,
    device: str,
    num_threads: int | None,
) -> StaticEmbedder:
    if device != "cpu":
        raise InputError(f"a static table is on the CPU, not on {device}")
    return kind.from_pretrained(
        loading.place, max_length=max_length, num_threads=num_threads, **loading.options
    )
