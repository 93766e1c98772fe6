"""Cross-encoders: scores of pairs, each pair encoded as one sequence."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from encoder_engine.embedding.directory.activation import check_activation, read_activation
from encoder_engine.embedding.directory.modules import RANKER_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import Settings
from encoder_engine.embedding.engines.choosing import (
    EngineRequest,
    load_encoder,
    load_sequence_classification,
    scoring_engine,
    torch_engine,
    vector_engine,
)
from encoder_engine.embedding.jobs.keywords import run_over_files
from encoder_engine.embedding.jobs.pickling import PickledModel, load_again
from encoder_engine.embedding.library_keywords import (
    CommonKeywords,
    PairKeywords,
    check_names,
    naming,
    resolve_output,
)
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    check_on_truncation,
    check_positive,
    resolve_batch_tokens,
    resolve_prompt,
)
from encoder_engine.embedding.parts import Loading, token_limit
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import write_ranker_settings
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.calls import ScoreCall, ScoreKeywords, ScoreOptions
from encoder_engine.embedding.steps.pairs import (
    Ranked,
    check_top_k,
    is_pair,
    order_documents,
    unzip_pairs,
)
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.scores import apply_function, check_scores, softmax
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import ResultWindow, TokenizedWindow, located_error
from encoder_engine.errors import InputError, TextError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.files import fetching, hub_of_base, resolve_directory
from encoder_engine.packing.module_stack import SCORE_FUNCTIONS
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    import torch

    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.directory.recipe import PoolingRecipe
    from encoder_engine.embedding.engines.engine import Activation, Engine, EngineChoice
    from encoder_engine.embedding.jobs.keywords import JobKeywords
    from encoder_engine.embedding.steps.scores import Scores
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import Encoder, SequenceClassification
    from encoder_engine.text import Tokenizer

__all__ = ["Ranked", "Ranker"]


class PredictKeywords(ScoreKeywords, PairKeywords, total=False):
    """The keywords of :meth:`Ranker.predict`: those of :meth:`Ranker.score`, and the library's."""


class RankKeywords(ScoreKeywords, CommonKeywords, total=False):
    """The keywords of :meth:`Ranker.rank`: those of :meth:`Ranker.score`, and the library's."""


class Ranker(PickledModel):
    """Scores pairs of texts as a ``CrossEncoder`` would with the same directory.

    ``activation`` turns logits into scores: ``"sigmoid"``, ``"softmax"``, ``"identity"``, ...
    ``recipe``: the pooling and the modules that make logits of an encoder without a head.
    Raises :class:`ConfigError` where the tokenizer has more tokens than the model.
    """

    engine: Engine
    call_type = ScoreCall
    _recipe: PoolingRecipe | None = None

    def __init__(
        self,
        model: CompiledEncoder | Encoder | SequenceClassification,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int | None = None,
        activation: Activation = "identity",
        settings: Settings | None = None,
        recipe: PoolingRecipe | None = None,
    ) -> None:
        self.model, self._recipe = model, recipe
        given: Any = model
        self._scoring: Any = (
            scoring_engine(given) if recipe is None else vector_engine(given, recipe.modules)
        )
        self.engine = self._scoring
        spec = self.engine.spec
        if recipe is not None:
            recipe.check_width(spec.width)
        tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
        self.memory_limit = MemoryLimit()
        self.tokenizer = tokenizer
        least = len(tokenizer.encode_batch([""], [""]).ids) + 1
        self.max_seq_length = token_limit(max_seq_length, spec.max_length, least=least)
        self.activation = check_activation(activation)
        self.settings = Settings() if settings is None else settings
        self._path: str | None = None
        self._reload: Callable[..., Ranker] | None = None

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        max_seq_length: int | None = None,
        activation: Activation | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a model for sequence classification: a CrossEncoder's directory or a plain one.

        ``activation`` None: the directory's, or by default sigmoid for a model with one label and
        identity otherwise. ``quantization="int8"`` rounds the blocks' dense layers, not the head,
        on a CPU. Raises :class:`UnsupportedFeatureError` for other modules than Pooling and
        those after it. Other options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(resolve_directory(path_or_hub_id, **hub), "CrossEncoder", RANKER_ORDER),
            task="sequence-classification",
            reads="logits",
            makes="scores",
        )
        folder = opened.encoder_folder
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        recipe = opened.read_recipe(None) if opened.modules[1:] else None
        load = load_sequence_classification if recipe is None else load_encoder
        stated = read_activation(opened.directory, folder) if activation is None else activation
        ranker = cls(
            load(folder, request),
            opened.read_tokenizer(),
            max_seq_length=opened.max_seq_length if max_seq_length is None else max_seq_length,
            activation="identity" if stated is None else stated,
            settings=opened.settings,
            recipe=recipe,
        )
        if stated is None and ranker.num_labels == 1:
            ranker.activation = "sigmoid"
        ranker._path = str(opened.directory)
        options = {**request.options(ranker.engine.name), **hub_of_base()}
        ranker._reload = partial(load_again, cls, Loading(path=ranker._path, options=options))
        return ranker

    @property
    def device(self) -> str:
        """The device that computes, as PyTorch writes it."""
        return self.engine.device

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.settings.prompts

    @property
    def num_labels(self) -> int:
        """The number of scores of each pair."""
        engine, recipe = self._scoring, self._recipe
        if recipe is None:
            return int(engine.num_labels)
        return recipe.modules.width(engine.spec.width * len(recipe.pooling))

    @naming("pairs")
    def score(
        self, pairs: Iterable[tuple[str, str]] | tuple[str, str], **options: Unpack[ScoreKeywords]
    ) -> Scores:
        """Score pairs of texts: float32 [N], or [N, C] of a model with several labels.

        A single pair has a score, or [C].

        prompt, prompt_name: a text, or the name of the directory's, put before each first text.
        activation: replaces the model's.
        batch_tokens, batch_size: the most tokens and the most pairs of a batch.
        on_truncation: see :meth:`Embedder.encode`; a pair longer than ``max_seq_length`` loses the
            tail of its longer text.
        show_progress_bar: a bar on standard error, if that is a terminal.

        Raises :class:`TextError` and :class:`InputError` with the row, and
        :class:`NonFiniteVectorError` where a score is NaN or infinite.
        """
        check_names("score", options, ScoreKeywords)
        scores = self._score(pairs, options)
        scores = scores[:, 0] if self.num_labels == 1 else scores
        return scores[0] if is_pair(pairs) else scores

    def _score(self, pairs: Iterable[Any], keywords: ScoreKeywords) -> Scores:
        """Score pairs, [N, C]; a single one, [1, C]."""
        given: dict[str, Any] = {"on_truncation": "warn", **keywords}
        shown = bool(given.pop("show_progress_bar", False))
        call = ScoreCall(**given)
        firsts, seconds = unzip_pairs([pairs] if is_pair(pairs) else pairs)
        options = self.resolve(call)
        notice = TruncationNotice(call.on_truncation, limit=self.max_seq_length, row_name="pair")
        tokenized = self._tokenize(firsts, seconds, 0, options, notice)
        notice.warn()
        with progress_bar(len(firsts), shown=shown, action="Scoring") as advance:
            return self._scores(tokenized, options, advance)

    @naming("pairs")
    def predict(
        self,
        pairs: Iterable[tuple[str, str]] | tuple[str, str],
        *,
        activation_fn: Callable[[Any], Any] | None = None,
        apply_softmax: bool = False,
        convert_to_tensor: bool = False,
        **options: Unpack[PredictKeywords],
    ) -> Any:
        """Score pairs as ``CrossEncoder.predict`` does: an array, or one score of a single pair.

        activation_fn: a function of PyTorch that replaces the activation: it takes the logits
            [N, C] and returns a row of scores for each pair.
        apply_softmax: the labels' scores of a pair add up to 1, where there are several.
        convert_to_tensor: a tensor on the CPU.
        options: those of :meth:`score`, and others of sentence-transformers; see
            :class:`PairKeywords`.

        Exceptions: see :meth:`score`.
        """
        output = resolve_output(
            *("predict", options),
            convert_to_tensor=convert_to_tensor,
            device=self.engine.device,
            known=PredictKeywords,
            job="score_dataset",
        )
        names = [name for name in ScoreKeywords.__annotations__ if name in options]
        keywords: Any = {name: options[name] for name in names}  # type: ignore[literal-required]
        if activation_fn is not None:
            if keywords.get("activation") is not None:
                raise InputError("give activation or activation_fn, not both")
            keywords["activation"] = "identity"
        scores = self._score(pairs, keywords)
        if activation_fn is not None:
            scores = apply_function(activation_fn, scores)
        if self.num_labels == 1 and scores.shape[1:] == (1,):
            scores = scores[:, 0]
        if apply_softmax and scores.ndim == 2:
            scores = softmax(scores)
        found: Any = scores
        if output == "torch":
            found = torch_engine("convert_to_tensor=True").as_tensor(np.ascontiguousarray(scores))
        return found[0] if is_pair(pairs) else found

    def score_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        pair_column: str = "text",
        on_truncation: Literal["ignore", "error"] = "ignore",
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: Activation | None = None,
        batch_tokens: int | None = None,
        **job: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Score the pairs of files into a file or a folder of shards: a row of scores each.

        ``load_vectors(output).scores`` reads them. ``column``, by default ``query``, and
        ``pair_column`` name the two texts. Other options: see :meth:`Embedder.encode_dataset`
        and :meth:`score`.
        """
        call = ScoreCall(
            prompt=prompt,
            prompt_name=prompt_name,
            activation=activation,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return run_over_files(
            *(self, inputs, output),
            task="scores",
            call=call,
            job={"column": "query", **job},
            pair_column=pair_column,
        )

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``CrossEncoder``: classifier, tokenizer, prompts, card.

        Exceptions: see :meth:`Embedder.save_pretrained`; :class:`UnsupportedFeatureError` for a
        model in int8.
        """
        if self._recipe is not None:
            raise UnsupportedFeatureError(
                f"a cross-encoder of Pooling and Dense modules is not saved: copy {self.name}"
            )
        folder = open_target(directory, self._path, of_head=self.engine.quantization)
        self._scoring.save_encoder(folder)
        self.tokenizer.save(folder)
        write_ranker_settings(
            *(folder, self.engine.spec, self.settings),
            activation=self.activation,
            num_labels=self.num_labels,
            max_seq_length=self.max_seq_length,
            base_model=self._path,
        )

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self._path or "memory"

    def resolve(self, call: ScoreCall) -> ScoreOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        settings, engine, chosen = self.settings, self.engine, call.activation
        check_on_truncation(call.on_truncation)
        if call.batch_size is not None:
            check_positive(call.batch_size, "batch_size")
        budget = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        return ScoreOptions(
            prompt=resolve_prompt(
                *(call.prompt, call.prompt_name),
                *(settings.prompts, settings.default_prompt_name),
            ),
            activation=self.activation if chosen is None else check_activation(chosen),
            batch_tokens=resolve_batch_tokens(call.batch_tokens, budget),
            batch_size=call.batch_size,
            on_truncation=call.on_truncation,
            num_labels=self.num_labels,
        )

    def stored_dimension(self, options: ScoreOptions) -> int:
        """Return the number of scores of a pair."""
        return options.num_labels

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records: a classifier with a head has no pooling of its own."""
        modes = () if self._recipe is None else self._recipe.pooling
        return {"pooling": list(modes), "layers": []}

    def describe_options(self, options: ScoreOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe()

    def tokenize_window(
        self, texts: list[tuple[str, str]], first_row: int, options: ScoreOptions
    ) -> TokenizedWindow:
        """Tokenize a window of pairs."""
        firsts, seconds = unzip_pairs(texts)
        notice = TruncationNotice(options.on_truncation, limit=self.max_seq_length, row_name="pair")
        return self._tokenize(firsts, seconds, first_row, options, notice)

    def encode_window(self, tokenized: TokenizedWindow, options: ScoreOptions) -> ResultWindow:
        """Score a tokenized window of pairs."""
        start = time.perf_counter()
        scores = self._scores(tokenized, options)
        return ResultWindow.of(scores, tokenized, time.perf_counter() - start)

    def reload(self) -> Callable[[str, int], Ranker] | None:
        """Return a function that loads the model in another process; None without files."""
        if self._reload is None:
            return None
        return partial(self._reload, max_seq_length=self.max_seq_length, activation=self.activation)

    def _tokenize(
        self,
        firsts: list[str],
        seconds: list[str],
        first_row: int,
        options: ScoreOptions,
        notice: TruncationNotice,
    ) -> TokenizedWindow:
        start, prefix = time.perf_counter(), options.prompt
        if prefix:
            firsts = [prefix + one if isinstance(one, str) else one for one in firsts]
        threads = self.engine.num_threads
        try:
            encoding = self.tokenizer.encode_batch(
                firsts, seconds, max_length=self.max_seq_length, num_threads=threads
            )
        except TextError as error:
            raise located_error(error, firsts, first_row) from None
        notice.observe(np.asarray(encoding.truncated), first_row)
        spent = time.perf_counter() - start
        return TokenizedWindow(encoding=encoding, first_row=first_row, seconds=spent)

    def _compute(self, rows: TokenRows, activation: Activation) -> Scores:
        """Score a batch, float32 [b, C]."""
        if self._recipe is not None:
            logits_BC: Scores = self._scoring.pooled(rows, modes=self._recipe.pooling)
        else:
            # The engine's own sigmoid computes in float64.
            within: Activation = "sigmoid" if activation == "sigmoid" else "identity"
            logits_BC = self._scoring.scores(rows, activation=within)
            if within == activation:
                return logits_BC
        # A logit that is NaN or infinite is found among the scores.
        with np.errstate(all="ignore"):
            return SCORE_FUNCTIONS[activation](logits_BC)

    def _scores(
        self,
        tokenized: TokenizedWindow,
        options: ScoreOptions,
        advance: Callable[[int], None] = lambda _done: None,
    ) -> Scores:
        """Score tokenized pairs, float32 [n, C]; ``advance`` is called with finished pairs.

        Raises :class:`NonFiniteVectorError`.
        """
        encoding, first_row = tokenized.encoding, tokenized.first_row
        scores = np.empty((len(encoding), self.num_labels), dtype=np.float32)
        for rows, found in compute_batches(
            *(self.engine, TokenRows.of(encoding)),
            partial(self._compute, activation=options.activation),
            batch_tokens=options.batch_tokens,
            batch_size=options.batch_size,
            limit=self.memory_limit,
            numbers=first_row + np.arange(len(encoding)),
            row_name="pair",
        ):
            scores[rows] = found
            advance(len(rows))
        check_scores(scores, first_row)
        return scores

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        activation_fn: Callable[[Any], Any] | None = None,
        **options: Unpack[RankKeywords],
    ) -> list[Ranked]:
        """Rank documents for a query: the best first, equal scores in the order given.

        ``top_k``: the most documents to return; None: all. Raises :class:`UnsupportedFeatureError`
        for a model with several labels, whose scores have no order. Other options and exceptions:
        see :meth:`predict`.
        """
        if self.num_labels != 1:
            raise UnsupportedFeatureError(
                f"rank needs a model with one label, this one has {self.num_labels}; use score"
            )
        check_names("rank", options, RankKeywords)
        check_top_k(top_k)
        texts = list(open_texts(documents).rows)
        pairs = [(query, text) for text in texts]
        scores = self.predict(pairs, activation_fn=activation_fn, **options)
        if scores.ndim != 1:
            raise InputError(
                f"rank orders documents by one score each, activation_fn made {scores.shape[1]}"
            )
        return order_documents(scores, texts, top_k=top_k, return_documents=return_documents)
