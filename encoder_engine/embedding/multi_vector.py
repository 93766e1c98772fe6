"""Late interaction (ColBERT): one projected vector per token of queries and documents."""

from __future__ import annotations

import hashlib
import time
import warnings
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.directory.late_interaction import (
    STANFORD_PROJECTION,
    TokenMask,
    open_late_interaction,
)
from encoder_engine.embedding.directory.recipe import PoolingRecipe, Settings
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.engines.choosing import EngineRequest, load_encoder
from encoder_engine.embedding.jobs.keywords import run_over_files
from encoder_engine.embedding.jobs.pickling import load_again
from encoder_engine.embedding.library_keywords import (
    TokenKeywords,
    check_keywords,
    naming,
    refuse_forms,
)
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.parts import Loading, smallest
from encoder_engine.embedding.queries import TaskMethods
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import write_late_interaction_settings
from encoder_engine.embedding.steps.calls import TokenCallKeywords
from encoder_engine.embedding.steps.token_vectors import (
    TokenVectors,
    embed_token_window,
    embed_tokens,
    max_similarity,
)
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import ResultWindow, tokenize_texts
from encoder_engine.errors import (
    ConfigError,
    InputError,
    MissingPoolerWarning,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.files import fetching, hub_of_base, resolve_directory
from encoder_engine.packing.module_stack import EMPTY_STACK, DenseModule, ModuleStack
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    import torch
    from torch import Tensor

    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.engines.engine import EngineChoice, VectorEngine, Vectors
    from encoder_engine.embedding.expansion import QueryExpansion
    from encoder_engine.embedding.jobs.keywords import JobKeywords
    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.steps.window import TokenizedWindow
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.packing.token_rows import TokenizedRows
    from encoder_engine.text import Tokenizer

__all__ = ["MultiVectorEmbedder"]

Kind = Literal["document", "query"]
# sentence-transformers' name of MaxSim divided by the number of the query's tokens.
MEAN = "meanmaxsim"


class TokenEncodeKeywords(TokenCallKeywords, TokenKeywords, total=False):
    """The keywords of :meth:`MultiVectorEmbedder.encode`: its own, and those of the library."""


class MultiVectorEmbedder(TaskMethods):
    """Embeds queries and documents token by token, as a ``MultiVectorEncoder`` would.

    projection_ND: projects the encoder's D features to N, without a bias; kept as float32.
    skipped: ids of tokens that documents leave out.
    modules: what follows the encoder, instead of ``projection_ND``.
    mask: the tokens that are left out, instead of ``skipped``.
    query_length, document_length: the most tokens; None: the embedder's limit.
    expansion: pads queries; None: they are not padded.

    Queries begin with the embedder's prompt ``query``, and are padded where the model expands them;
    documents begin with ``document``. Compare the vectors by :func:`max_similarity`.
    """

    def __init__(
        self,
        embedder: Embedder,
        projection_ND: Vectors | Tensor | None = None,
        *,
        skipped: Iterable[int] = (),
        normalized: bool = True,
        modules: ModuleStack = EMPTY_STACK,
        mask: TokenMask | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        expansion: QueryExpansion | None = None,
    ) -> None:
        if projection_ND is not None:
            modules = ModuleStack((DenseModule(weight_NK=_as_array(projection_ND)),))
        mismatch = modules.mismatch(embedder.engine.spec.width)
        if mismatch is not None:
            raise ConfigError(f"{mismatch}; the files belong to different models")
        self.embedder = embedder
        self.modules = modules
        self.mask = TokenMask(skipped=frozenset(skipped)) if mask is None else mask
        self.normalized = normalized
        self.expansion = expansion
        self._lengths: dict[Kind, int | None] = {
            "query": query_length,
            "document": document_length,
        }
        positions = embedder.engine.spec.max_length
        if expansion is not None and positions is not None and expansion.length > positions:
            raise ConfigError(
                f"queries are padded to {expansion.length} tokens, the encoder has {positions} "
                "positions"
            )
        # None where the parts were put together in memory.
        self.loading: Loading | None = None

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a directory of sentence-transformers' MultiVectorEncoder, of PyLate, or of ColBERT.

        Files are first compared with the ``SHA256SUMS`` of the directory and of its modules, if
        there are any. Raises :class:`UnsupportedFeatureError` for other modules. Options and other
        exceptions: see :meth:`Embedder.from_pretrained`; int8 leaves the projection as it is.
        """
        directory = resolve_directory(path_or_hub_id, **hub)
        found = open_late_interaction(directory)
        opened, folder = found.opened, found.opened.encoder_folder
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        with warnings.catch_warnings():
            # Late interaction needs no pooler, and has read ColBERT's projection itself.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            own = rf".*not loaded: {STANFORD_PROJECTION}$"
            warnings.filterwarnings("ignore", own, UnusedWeightsWarning)
            encoder = load_encoder(folder, request)
        recipe = PoolingRecipe(
            encoder_directory=folder,
            pooling=("mean",),
            max_seq_length=opened.max_seq_length,
            lowercase=opened.transformer.lowercase,
            prompts=opened.settings.prompts,
            default_prompt_name=opened.settings.default_prompt_name,
            similarity=opened.settings.similarity,
        )
        embedder = cls(
            Embedder(encoder, found.tokenizer, recipe),
            modules=found.modules,
            mask=found.mask,
            normalized=found.normalized,
            query_length=found.query_length,
            document_length=found.document_length,
            expansion=found.expansion,
        )
        options = {**request.options(embedder.engine.name), **hub_of_base()}
        embedder.loading = Loading(path=str(directory), options=options)
        return embedder

    @property
    def engine(self) -> VectorEngine:
        """The engine of the encoder."""
        return self.embedder.engine

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.embedder.prompts

    @property
    def dimension(self) -> int:
        """Features of a token's vector."""
        return self.modules.width(self.embedder.engine.spec.width)

    @property
    def projection_ND(self) -> Vectors | None:  # noqa: N802
        """The weight of the projection, if nothing else follows the encoder; else None."""
        first = self.modules.modules[:1]
        is_alone = len(self.modules.modules) == 1 and isinstance(first[0], DenseModule)
        return first[0].arrays()["weight"] if is_alone else None

    @property
    def skipped(self) -> frozenset[int]:
        """The ids of tokens that documents leave out."""
        return self.mask.skipped if "document" in self.mask.tasks else frozenset()

    @naming("texts")
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        task: Kind | None = None,
        **options: Unpack[TokenEncodeKeywords],
    ) -> TokenVectors:
        """Embed texts as queries or as documents: one text each, in the order given.

        ``task`` None: as documents, of at most ``max_seq_length`` tokens, as in
        ``MultiVectorEncoder.encode``. The prompt is the directory's default unless one is given;
        :meth:`encode_query` and :meth:`encode_document` have their own. Options and exceptions: see
        :meth:`Embedder.encode` and :class:`TokenKeywords`.
        """
        embedder = self.embedder
        check_keywords(
            *("encode", options, TokenEncodeKeywords),
            device=embedder.engine.device,
            job="encode_dataset",
        )
        refuse_forms(options, "found.vectors, and found[i] of text i,")
        if task not in (None, "query", "document"):
            raise InputError(f"task must be 'query' or 'document', got {task!r}")
        given: dict[str, Any] = {"normalize_embeddings": None, "on_truncation": "warn", **options}
        own = {f.name: given[f.name] for f in fields(EncodeCall) if f.name in given}
        if own["normalize_embeddings"] is None:
            own["normalize_embeddings"] = self.normalized
        kind = task or "document"
        found = embed_tokens(
            *(embedder, texts, embedder.resolve(EncodeCall(**own))),
            modules=self.modules,
            max_length=embedder.max_seq_length if task is None else self.most_tokens(kind),
            rows_of=self.rows_of(kind),
            shown=bool(given.get("show_progress_bar")),
        )
        return self.scored(found, kind)

    def similarity(self, queries: TokenVectors, documents: TokenVectors) -> Vectors:
        """Score documents for queries by :func:`max_similarity`: float32 [Q, N].

        A directory that states ``meanmaxsim`` divides by the number of a query's tokens. Raises
        :class:`InputError` for other values than :class:`TokenVectors`.
        """
        for value in (queries, documents):
            if not isinstance(value, TokenVectors):
                raise InputError(
                    "similarity compares TokenVectors, as encode returns them, got "
                    f"{type(value).__name__}"
                )
        scores = max_similarity(queries, documents)
        if self.embedder.recipe.similarity != MEAN:
            return scores
        lengths = np.maximum(np.diff(queries.cu_seqlens), 1)
        means: Vectors = np.divide(scores, lengths[:, None], dtype=np.float32)
        return means

    def encode_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        kind: Kind = "document",
        on_truncation: Literal["ignore", "error"] = "ignore",
        batch_tokens: int | None = None,
        **job: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Embed files into a table, or a folder of shards, of ``token_ids`` and ``embeddings``.

        ``load_vectors(output).tokens`` reads them. ``kind``: what the texts are. Other options: see
        :meth:`Embedder.encode_dataset`.
        """
        call = EncodeCall(
            prompt_name=kind,
            normalize_embeddings=self.normalized,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return run_over_files(
            *(TokensJob(self, kind), inputs, output), task="tokens", call=call, job=job
        )

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``MultiVectorEncoder``: encoder, tokenizer, modules, card.

        Exceptions: see :meth:`Embedder.save_pretrained`.
        """
        embedder, mask = self.embedder, self.mask
        recipe, tokenizer = embedder.recipe, embedder.tokenizer
        own = self.loading.path if self.loading else str(recipe.encoder_directory)
        folder = open_target(directory, own)
        embedder.engine.save_encoder(folder)
        tokenizer.save(folder)
        write_late_interaction_settings(
            *(folder, embedder.engine.spec, self.modules),
            settings=Settings(
                prompts=dict(recipe.prompts),
                default_prompt_name=recipe.default_prompt_name,
                similarity=MEAN if recipe.similarity == MEAN else None,
            ),
            max_seq_length=embedder.max_seq_length,
            query_length=self._lengths["query"],
            document_length=self._lengths["document"],
            expansion=None if self.expansion is None else self.expansion.describe(tokenizer),
            skipped_words=[str(tokenizer.id_to_token(one)) for one in sorted(mask.skipped)],
            skipped_of=sorted(mask.tasks),
            kept_ids=sorted(mask.kept) or None,
            normalized=self.normalized,
            base_model=self.loading.path if self.loading else None,
        )

    def most_tokens(self, kind: Kind) -> int | None:
        """Return the most tokens of a text of a kind; None: no limit."""
        length, expansion = self._lengths[kind], self.expansion
        if kind == "query" and expansion is not None:
            if expansion.fixed:
                return expansion.length
            length = None if length is None else max(length, expansion.length)
        positions = self.embedder.engine.spec.max_length
        return self.embedder.max_seq_length if length is None else smallest(length, positions)

    def rows_of(self, kind: Kind) -> Callable[[TokenizedRows], TokenRows]:
        """Return the function that turns tokenized texts into rows; it may pad queries."""
        is_padded = self.expansion is not None and kind == "query"
        return self.expansion.expand if is_padded and self.expansion else TokenRows.of

    def scored(self, found: TokenVectors, kind: Kind) -> TokenVectors:
        """Return only the vectors of a kind's texts that count in a score."""
        mask = self.mask
        if mask.skipped and kind in mask.tasks:
            found = found.without(mask.skipped)
        if mask.kept and kind == "document":
            found = found.only(mask.kept)
        return found

    def describe(self, kind: Kind) -> str:
        """Return a digest of the settings beside the encoder that decide a kind's vectors."""
        mask, expansion = self.mask, self.expansion if kind == "query" else None
        chosen = [sorted(mask.skipped) if kind in mask.tasks else [], sorted(mask.kept)]
        facts = f"{chosen} {expansion} {self.most_tokens(kind)} {self.modules.join_fingerprint('')}"
        return hashlib.sha256(facts.encode()).hexdigest()


class TokensJob:
    """A :class:`JobModel` that embeds the tokens of documents or of queries."""

    def __init__(self, model: MultiVectorEmbedder, kind: Kind) -> None:
        self._model, self._kind = model, kind

    @property
    def engine(self) -> VectorEngine:
        """The engine of the encoder."""
        return self._model.embedder.engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self._model.embedder.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """Tokens kept of each text."""
        return self._model.most_tokens(self._kind)

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self._model.loading.path if self._model.loading else self._model.embedder.name

    def resolve(self, call: EncodeCall) -> EncodeOptions:
        """Check the options of a call and fill in the model's settings for those not given."""
        if call.normalize_embeddings is None:
            call = replace(call, normalize_embeddings=self._model.normalized)
        return self._model.embedder.resolve(call)

    def stored_dimension(self, options: EncodeOptions) -> int:  # noqa: ARG002
        """Return the number of features of a token's vector."""
        return self._model.dimension

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the projection and of the tokens that are left out."""
        return {"pooling": [], "layers": [], "projection": self._model.describe(self._kind)}

    def describe_options(self, options: EncodeOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe() | {"dimension": self._model.dimension}

    def tokenize_window(
        self, texts: list[str], first_row: int, options: EncodeOptions
    ) -> TokenizedWindow:
        """Tokenize a window of texts."""
        return tokenize_texts(
            self.tokenizer,
            texts,
            first_row,
            prompt=options.prompt,
            num_prompt_tokens=0,
            max_length=self.max_seq_length,
            num_threads=self.engine.num_threads,
            notice=TruncationNotice(options.on_truncation, limit=self.max_seq_length),
        )

    def encode_window(self, tokenized: TokenizedWindow, options: EncodeOptions) -> ResultWindow:
        """Embed the tokens of a tokenized window."""
        start, model = time.perf_counter(), self._model
        found = embed_token_window(
            *(model.embedder, tokenized, options),
            modules=model.modules,
            rows_of=model.rows_of(self._kind),
        )
        found = model.scored(found, self._kind)
        return ResultWindow.of(found, tokenized, time.perf_counter() - start)

    def reload(self) -> Callable[[str, int], TokensJob] | None:
        """Return a function that loads the model in another process; None without files."""
        if self._model.loading is None:
            return None
        return partial(_load_again, type(self._model), self._model.loading, self._kind)


def _load_again(
    model_type: type[MultiVectorEmbedder],
    loading: Loading,
    kind: Kind,
    device: str,
    num_threads: int,
) -> TokensJob:
    return TokensJob(load_again(model_type, loading, device, num_threads), kind)


def _as_array(projection_ND: Vectors | Tensor) -> Vectors:
    """Return a projection as a contiguous float32 array; a tensor is copied from its device."""
    plain: Any = projection_ND
    if not isinstance(projection_ND, np.ndarray):
        plain = projection_ND.detach().float().cpu().numpy()
    return np.ascontiguousarray(plain, dtype=np.float32)
