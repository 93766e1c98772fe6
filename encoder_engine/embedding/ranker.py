"""Cross-encoders: score pairs of texts, each pair encoded as one sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.library_keywords import (
    CommonKeywords,
    PairKeywords,
    check_names,
    naming,
    resolve_output,
)
from encoder_engine.embedding.saving.modules import open_target
from encoder_engine.embedding.saving.other_directories import write_ranker_settings
from encoder_engine.engine.choosing import EngineRequest, engine_of, load_model, torch_engine
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.families.config import read_config
from encoder_engine.families.heads import check_ending, label_function
from encoder_engine.jobs.keywords import JobKeywords, run_over_files
from encoder_engine.kinds.kind import refuse_non_finite
from encoder_engine.kinds.model import Model
from encoder_engine.kinds.options import CallKeywords, token_limit
from encoder_engine.kinds.pairs import (
    Labels,
    Pairs,
    Ranked,
    ScoreKeywords,
    check_top_k,
    is_pair,
    order_documents,
    unzip_pairs,
)
from encoder_engine.kinds.texts import open_texts
from encoder_engine.opening.activation import check_activation, read_activation
from encoder_engine.opening.modules import RANKER_ORDER
from encoder_engine.opening.opening import open_directory
from encoder_engine.opening.recipe import Settings
from encoder_engine.packing.module_stack import EMPTY_STACK, SCORE_FUNCTIONS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    import torch

    from encoder_engine.engine.outputs import Activation
    from encoder_engine.engine.protocol import EngineChoice, Vectors
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.jobs.keywords import Paths
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.models import Encoder, SequenceClassification
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.text import Tokenizer

__all__ = ["Ranked", "Ranker"]


class PredictKeywords(ScoreKeywords, PairKeywords, total=False):
    """The keywords of :meth:`Ranker.predict`: :meth:`Ranker.score`'s and sentence-transformers'."""


class ScoreDatasetKeywords(CallKeywords, JobKeywords, total=False):
    """The keywords of :meth:`Ranker.score_dataset`."""

    activation: Activation | None


class RankKeywords(ScoreKeywords, CommonKeywords, total=False):
    """The keywords of :meth:`Ranker.rank`: :meth:`Ranker.score`'s and sentence-transformers'."""


class Ranker(Model):
    """Scores pairs of texts as a ``CrossEncoder`` would with the same directory.

    ``activation`` turns logits into scores: ``"sigmoid"``, ``"softmax"``, ``"identity"``, ...
    ``recipe``: for an encoder without a head, the pooling and modules that compute logits.
    Raises :class:`ConfigError` where special tokens lie beyond the model's vocabulary; a pair with
    another token beyond it raises :class:`TextError` when it is scored.
    """

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
        self.engine = engine_of(model, EMPTY_STACK if recipe is None else recipe.modules)
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
        on a CPU. Raises :class:`UnsupportedFeatureError` for modules other than Pooling and those
        that may follow it. Other options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            resolve_directory(path_or_hub_id, **hub),
            "CrossEncoder",
            RANKER_ORDER,
            task="sequence-classification",
            reads="logits",
            makes="scores",
        )
        folder = opened.encoder_folder
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        recipe = opened.read_recipe(None) if opened.modules[1:] else None
        tokenizer = opened.read_tokenizer()
        if recipe is None:
            config = read_config(weights_directory(folder))
            check_ending(config, tokenizer.encode("").tolist())
        stated = read_activation(opened.directory, folder) if activation is None else activation
        ranker = cls(
            load_model(folder, request, "sequence-classification" if recipe is None else None),
            tokenizer,
            max_seq_length=opened.max_seq_length if max_seq_length is None else max_seq_length,
            activation="identity" if stated is None else stated,
            settings=opened.settings,
            recipe=recipe,
        )
        if stated is None and ranker.num_labels == 1:
            ranker.activation = "sigmoid"
        return ranker.loaded_from(opened.directory, request)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The directory's prompts, by name."""
        return self.settings.prompts

    @property
    def num_labels(self) -> int:
        """The number of scores of each pair."""
        engine, recipe = self.engine, self._recipe
        if recipe is None:
            return int(engine.num_labels)
        return recipe.modules.width(engine.spec.width * len(recipe.pooling))

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that give no prompt."""
        return self.settings.default_prompt_name

    def kinds(self) -> dict[str, Kind]:
        """Return {"scores": ..., "labels": ...}: how pairs, or texts alone, are scored.

        See :meth:`Model.kinds`.
        """
        own: dict[str, Any] = {"activation": self.activation, "recipe": self._recipe}
        return {"scores": Pairs(self, **own), "labels": Labels(self, **own)}

    @property
    def labels(self) -> list[str]:
        """The names of the scores of a pair."""
        id2label: Mapping[int, str] = self.model.id2label  # type: ignore[assignment]
        return [name for _, name in sorted(id2label.items())]

    @property
    def label_function(self) -> Activation | None:
        """The function from a text's logits to its labels' scores; None: :attr:`activation`."""
        config = self.model.config
        # sentence-transformers states an activation; transformers the kind of labels.
        stated = self.num_labels == 1 or self.activation != "identity"
        if config.get("problem_type") is None and stated:
            return None
        return label_function(config)

    def changed_options(self) -> dict[str, Any]:
        """Return ``max_seq_length`` and ``activation``, which are settable after loading.

        See :meth:`Model.changed_options`.
        """
        return {"max_seq_length": self.max_seq_length, "activation": self.activation}

    @naming("pairs")
    def score(
        self, pairs: Iterable[tuple[str, str]] | tuple[str, str], **options: Unpack[ScoreKeywords]
    ) -> Vectors:
        """Score pairs of texts: float32 [N], or [N, C] of a model with several labels.

        A single pair gets a number, or [C].

        prompt: a text that is put before the first text of each pair.
        prompt_name: instead of ``prompt``, the name of one of the directory's prompts.
        activation: replaces the model's activation.
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

    def _score(self, pairs: Iterable[Any], keywords: ScoreKeywords) -> Vectors:
        """Score pairs: float32 [N, C]; a single pair gives [1, C]."""
        given: dict[str, Any] = {"on_truncation": "warn", **keywords}
        shown = bool(given.pop("show_progress_bar", False))
        firsts, seconds = unzip_pairs([pairs] if is_pair(pairs) else pairs)
        options = self.kind.resolve(**given)
        rows = zip(firsts, seconds, strict=True)
        scores: Vectors = self.kind.collect(rows, options, count=len(firsts), shown=shown)
        return scores

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
        apply_softmax: apply a softmax over the labels, if there are several.
        convert_to_tensor: a tensor on the CPU.
        options: those of :meth:`score`, and others of sentence-transformers; see
            :class:`PairKeywords`.

        Exceptions: see :meth:`score`.
        """
        output = resolve_output(
            "predict",
            options,
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
            scores = _apply(activation_fn, scores)
        if self.num_labels == 1 and scores.shape[1:] == (1,):
            scores = scores[:, 0]
        if apply_softmax and scores.ndim == 2:
            scores = SCORE_FUNCTIONS["softmax"](scores)
        found: Any = scores
        if output == "torch":
            found = torch_engine("convert_to_tensor=True").as_tensor(np.ascontiguousarray(scores))
        return found[0] if is_pair(pairs) else found

    def score_dataset(
        self,
        inputs: Paths,
        output: str | os.PathLike[str],
        *,
        pair_column: str = "text",
        **options: Unpack[ScoreDatasetKeywords],
    ) -> DatasetSummary:
        """Score the pairs of files into a file or a folder of shards: one row of scores per pair.

        ``load_vectors(output).scores`` reads them. ``column``, by default ``query``, and
        ``pair_column`` name the two texts. Other options: see :meth:`Embedder.encode_dataset`
        and :meth:`score`.
        """
        check_names("score_dataset", options, ScoreDatasetKeywords)
        keywords: dict[str, Any] = {"column": "query", **options}
        return run_over_files(self.kind, inputs, output, keywords, pair_column=pair_column)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the directory of a ``CrossEncoder``: classifier, tokenizer, prompts, card.

        Exceptions: see :meth:`Embedder.save_pretrained`; :class:`UnsupportedFeatureError` for a
        model in int8, and for one of Pooling and Dense modules.
        """
        if self._recipe is not None:
            raise UnsupportedFeatureError(
                f"a cross-encoder of Pooling and Dense modules is not saved: copy {self.name}"
            )
        folder = open_target(directory, self.path, of_head=self.engine.quantization)
        self.engine.save_encoder(folder)
        self.tokenizer.save(folder)
        write_ranker_settings(
            folder,
            self.engine.spec,
            self.settings,
            activation=self.activation,
            num_labels=self.num_labels,
            max_seq_length=self.max_seq_length,
            base_model=self.path,
        )

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
        """Rank documents for a query, best first; equal scores stay in the order given.

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


def _apply(function: Callable[[Any], Any], logits_NC: Vectors) -> Vectors:
    """Apply a PyTorch function to logits, and return the scores as an array."""
    found = function(torch_engine("activation_fn=").as_tensor(logits_NC))
    # NumPy has no bfloat16.
    plain = found.detach().float().cpu() if hasattr(found, "detach") else found
    scores = np.asarray(plain, dtype=np.float32)
    if scores.shape[:1] != logits_NC.shape[:1] or scores.ndim > 2:
        raise InputError(
            f"activation_fn must return a row of scores for each of {len(logits_NC)} pairs, it "
            f"returned {list(scores.shape)}"
        )
    rows = np.arange(len(scores))
    refuse_non_finite(np.isfinite(scores), rows, what="scores", row_name="pair")
    return scores
