"""Static embeddings: tokenize, look up rows of a table, average. No encoder, and no PyTorch.

How it works: a window of 4,096 texts is tokenized by all threads into packed ids. One native call
then adds the table's rows of each text, divides by their number and normalizes. The table stays the
pages of its file, in the dtype in which it was published; numbers are widened in registers. Rows of
a text are prefetched while its ids are read, since a table of 30,000 rows does not fit into a
core's cache.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.queries import DenseMethods
from encoder_engine.embedding.static.distilling import distill_model
from encoder_engine.embedding.static.model import (
    Coverage,
    StaticEngine,
    median_token_length,
    unknown_id,
)
from encoder_engine.embedding.static.reading import read_static_model
from encoder_engine.embedding.static.saving import save_static_model
from encoder_engine.embedding.static.word_vectors import read_word_vectors
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import InputError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.inference.options import check_threads
from encoder_engine.kinds.dense import StaticDense
from encoder_engine.kinds.model import Loading
from encoder_engine.kinds.options import check_positive
from encoder_engine.kinds.texts import open_texts
from encoder_engine.kinds.windows import windows
from encoder_engine.opening.recipe import PoolingRecipe
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from encoder_engine.embedding.static.model import Rules, StaticModel
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.kinds.kind import Kind

__all__ = ["Coverage", "StaticEmbedder", "StaticEngine"]


class StaticEmbedder(DenseMethods):
    """Turns texts into vectors as model2vec or sentence-transformers would with the same directory.

    It is safe to call from several threads. A text without a known token gets a vector of zeros.
    Vectors are float32, even if the table has fewer bits; ``batch_tokens`` and ``batch_size`` have
    no effect.
    """

    engine: StaticEngine
    default_truncation = "ignore"

    def __init__(self, model: StaticModel, *, num_threads: int | None = None) -> None:
        self.model = model
        self.engine = StaticEngine(model=model, num_threads=check_threads(num_threads))
        self._name = model.settings.base_model or "memory"
        self.memory_limit = MemoryLimit()
        settings = model.settings
        self._recipe = PoolingRecipe(
            encoder_directory=Path(),
            pooling=("mean",),
            normalized=settings.normalized,
            truncate_dim=settings.truncate_dim,
        )
        # The most characters that model2vec reads of a text.
        self._cut: int | None = None
        if settings.rules == "model2vec" and settings.max_length is not None:
            self._cut = settings.max_length * median_token_length(model.tokenizer)

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

        max_length: the most tokens of a text; None: no limit. ``"stated"``: the directory's limit.
        rules: ``"model2vec"`` leaves unknown tokens out, keeps 512 tokens unless config.json or
            ``max_length`` says otherwise, and first truncates a text to as many times the median
            number of characters of a token. ``"sentence-transformers"`` keeps unknown tokens, and
            truncates as tokenizer.json states. None: ``"model2vec"`` if that is the ``model_type``
            of config.json, else the other.
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
        embedder.loading = Loading(path=str(directory), options={"rules": rules})
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
        white space and around punctuation, as BERT does. Words of texts that the file lacks are
        ignored; :meth:`coverage` counts them. A file may be compressed.

        lowercase: lower-cases texts; None: where no word of the file has an upper-case letter.
        max_words: the number of words to read from the start, which are the most frequent.
        normalize: scale vectors of texts to length 1.

        Raises :class:`RowError` with the line that cannot be read, and :class:`ReadError` for a
        file without words, or with fewer than its first line states.
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
        vectors are projected to their principal components. A token's vector is multiplied by ``a /
        (a + p)``, where p is its probability by Zipf's law: the vocabulary is in order of
        frequency.

        dimension: principal components to keep; None: no projection.
        sif_coefficient: ``a`` in this formula; None: no weights.
        pooling: of the hidden states, ``"mean"``, ``"cls"`` or ``"lasttoken"``.
        remove_tokens: a regular expression; a token that begins with a match is left out, if the
            vocabulary is WordPiece's. None: all tokens are kept.

        Raises :class:`InputError` for invalid options. Other exceptions: see
        :meth:`Embedder.from_pretrained`.
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
    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        """The tokenizer, whose ids index the rows of the table."""
        return self.model.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text; None: no limit."""
        return self.model.settings.max_length

    @property
    def dimension(self) -> int:
        """The number of features of a vector before ``truncate_dim``."""
        return self.model.table.width

    @property
    def prompts(self) -> Mapping[str, str]:
        """The directory's prompts, by name."""
        return self.model.settings.prompts

    @property
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states, if any."""
        return self.model.settings.similarity

    @property
    def name(self) -> str:
        """The path that the table was loaded from."""
        return self._name

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that give no prompt."""
        return self.model.settings.default_prompt_name

    def kinds(self) -> dict[str, Kind]:
        """Return {"dense": ...}: how a vector per text is computed; see :meth:`Model.kinds`."""
        rules = self.model.settings.rules
        return {"dense": StaticDense(self, self._recipe, rules=rules, cut=self._cut)}

    def changed_options(self) -> dict[str, Any]:
        """Return the present ``max_length``; see :meth:`Model.changed_options`."""
        return {"max_length": self.model.settings.max_length}

    @classmethod
    def load_again(
        cls, loading: Loading, device: str, num_threads: int | None = None, **changed: Any
    ) -> Self:
        """Load the same table in another process; see :meth:`Model.load_again`."""
        if device not in ("auto", "cpu"):
            raise InputError(f"a static table is on the CPU, not on {device}")
        options: dict[str, Any] = {**loading.options, **changed}
        return cls.from_pretrained(loading.place, num_threads=num_threads, **options)

    def coverage(self, texts: str | Iterable[str]) -> Coverage:
        """Count the unknown tokens of texts, and the texts that have no other token.

        By the rules of model2vec and in tables of words, unknown tokens have no vector; by those of
        sentence-transformers they have one, and are counted all the same.
        """
        unknown = unknown_id(self.tokenizer)
        num_tokens = num_unknown = num_empty = 0
        kind = self.kind
        options = kind.resolve(prompt="")
        for window in windows(open_texts(texts).rows, len):
            encoding = kind.tokenize_window(window, 0, options).encoding
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

    def truncating(self, side: Literal["left", "right"]) -> Self:
        """Return an embedder of the same table that truncates long texts at this side.

        By the rules of model2vec, the end is truncated whatever the side.
        """
        found = copy(self)
        tokenizer = Tokenizer(replace(self.tokenizer.spec, truncation_side=side))
        found.model = replace(self.model, tokenizer=tokenizer)
        return found

    def with_max_length(self, max_length: int | None) -> Self:
        """Return an embedder of the same table with another token limit; None: no limit."""
        if max_length is not None:
            check_positive(max_length, "max_length")
        settings = replace(self.model.settings, max_length=max_length)
        changed = type(self)(
            replace(self.model, settings=settings), num_threads=self.engine.num_threads
        )
        changed._name, changed.loading = self._name, self.loading
        return changed
