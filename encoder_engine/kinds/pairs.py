"""Scores of text pairs: by a cross-encoder, or by the answer of a causal model.

Dimensions: B pairs, C scores of a pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import Activation, LastLogits, Pooled, Scores
from encoder_engine.errors import InputError, TextError
from encoder_engine.kinds.kind import Kind, refuse_non_finite
from encoder_engine.kinds.options import CallKeywords, OnTruncation, Options, check_positive
from encoder_engine.opening.activation import check_activation
from encoder_engine.packing.module_stack import SCORE_FUNCTIONS
from encoder_engine.strings import from_arrow

if TYPE_CHECKING:
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.kinds.kind import Batches
    from encoder_engine.kinds.pair_formats import PairFormat
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.opening.recipe import PoolingRecipe
    from encoder_engine.packing.token_rows import WindowRows

__all__ = [
    "CausalPairs",
    "Labels",
    "Pairs",
    "Ranked",
    "ScoreKeywords",
    "ScoreOptions",
    "check_top_k",
    "is_pair",
    "order_documents",
    "unzip_pairs",
]


class ScoreKeywords(CallKeywords, total=False):
    """The keywords of :meth:`Ranker.score`."""

    activation: Activation | None
    on_truncation: OnTruncation
    show_progress_bar: bool | None


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(Options):
    """The options of a call that scores pairs."""

    activation: Activation

    def describe(self) -> dict[str, Any]:
        """Return the options that decide scores, as JSON values; runs over files record them."""
        return super().describe() | {"activation": self.activation}


class Pairs(Kind):
    """The :class:`Kind` that computes scores of text pairs, [n, C].

    activation: the default activation of a call.
    recipe: for an encoder without a head, the pooling and modules that compute logits.
    """

    name = "scores"
    row_name = "pair"
    action = "Scoring"
    requested = ("raw_scores",)
    noun = "scores"

    def __init__(
        self, model: Any, *, activation: Activation, recipe: PoolingRecipe | None = None
    ) -> None:
        super().__init__(model)
        self._activation, self._recipe = activation, recipe

    def resolve(self, *, activation: Activation | None = None, **common: Any) -> ScoreOptions:
        """Validate the keywords of a call, and fill in defaults."""
        return ScoreOptions(
            **self.common_options(**common),
            activation=self._activation if activation is None else check_activation(activation),
            dimension=self.model.num_labels,
        )

    def characters(self, row: Any) -> int:
        """Return the number of characters of both texts of a pair."""
        return sum(len(text) for text in row if isinstance(text, str))

    def tokenize(self, rows: list[Any], options: Any) -> WindowRows:
        """Tokenize text pairs, with the prompt before the first text; or single texts."""
        if all(isinstance(row, str) for row in rows):
            return super().tokenize(rows, options)
        firsts, seconds = unzip_pairs(rows)
        if options.prompt:
            firsts = [options.prompt + one if isinstance(one, str) else one for one in firsts]
        return self.tokenizer.encode_batch(
            firsts,
            seconds,
            max_length=self.limit(options),
            num_threads=self.model.engine.num_threads,
        )

    def wanted(self, options: ScoreOptions) -> tuple[Pooled | Scores, ...]:
        """Return what the engine computes for a batch: logits or their sigmoids.

        For an encoder without a head: pooled vectors, which become logits by further modules.
        """
        if self._recipe is not None:
            return (Pooled(modes=self._recipe.pooling),)
        # The engine's own sigmoid computes in float64.
        return (Scores(activation="sigmoid" if options.activation == "sigmoid" else "identity"),)

    def finish(self, window: TokenizedWindow, batches: Batches, options: ScoreOptions) -> Vectors:
        """Compute the scores of consecutive pairs, float32 [n, C]."""
        del window
        scores = np.empty((len(batches.rows), options.dimension), dtype=np.float32)
        # The softmax of an infinite logit can be finite: it is taken once the logits are checked.
        is_softmax = options.activation == "softmax"
        first = {"activation": "identity"} if is_softmax else {}
        options = ScoreOptions(**(vars(options) | first))
        for batch, (found,) in batches:
            # A logit that is NaN or infinite is found among the scores.
            with np.errstate(all="ignore"):
                scores[batch] = self.activated(found, options)
        refuse_non_finite(
            np.isfinite(scores), batches.numbers, what="scores", row_name=self.row_name
        )
        return SCORE_FUNCTIONS["softmax"](scores) if is_softmax else scores

    def activated(self, found: Vectors, options: ScoreOptions) -> Vectors:
        """Return the scores of pairs: the activation of their logits.

        Unless ``recipe`` is given, the engine has applied ``"identity"`` and ``"sigmoid"``.
        """
        if self._recipe is None and options.activation in ("identity", "sigmoid"):
            return found
        return SCORE_FUNCTIONS[options.activation](found)

    def join(self, parts: list[Vectors], options: ScoreOptions) -> Vectors:
        """Concatenate the scores of successive parts of the input."""
        return np.concatenate([np.empty((0, options.dimension), np.float32), *parts])

    def describe(self, options: ScoreOptions) -> dict[str, Any]:
        """Return the pooling modes, which a run over files records; none if there is a head."""
        modes = () if self._recipe is None else self._recipe.pooling
        return {**super().describe(options), "pooling": list(modes)}

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a request's arguments for :meth:`resolve`: ``"identity"`` for raw scores."""
        return {"activation": "identity"} if request.raw_scores else {}


class Labels(Pairs):
    """The :class:`Kind` that computes a score of each label, [n, C], for texts or text pairs."""

    name = "labels"

    def resolve(self, *, activation: Activation | None = None, **common: Any) -> ScoreOptions:
        """Validate the keywords of a call; the default activation is the model's for labels."""
        return super().resolve(activation=activation or self.model.label_function, **common)


class CausalPairs(Pairs):
    """The :class:`Kind` that scores a query and a document by a causal model's answer, [n, 1].

    format: the format of pairs as token rows.
    answers: the token ids of the positive and the negative answer, or only the positive's.
    """

    def __init__(
        self,
        model: Any,
        *,
        activation: Activation,
        format: PairFormat,  # noqa: A002
        answers: tuple[int, ...],
    ) -> None:
        super().__init__(model, activation=activation)
        self._format, self._answers = format, answers

    def resolve(
        self, *, prompt: str | None = None, prompt_name: str | None = None, **keywords: Any
    ) -> ScoreOptions:
        """Validate the keywords of a call, whose prompt is the instruction to the model.

        Raises :class:`InputError` for a prompt of the call if the format has no place for one.
        """
        options = super().resolve(prompt=prompt, prompt_name=prompt_name, **keywords)
        is_given = prompt is not None or prompt_name is not None
        if is_given and options.prompt and not self._format.takes_prompt:
            raise InputError(
                "the template's body has no {instruction}, so that no instruction and no prompt "
                "reaches the model; leave it out, or pass a template that has it"
            )
        if prompt is None and not options.prompt:
            options = ScoreOptions(**(vars(options) | {"prompt": self._format.prompt}))
        return options

    def tokenize(self, rows: list[Any], options: Any) -> WindowRows:
        """Format pairs as token rows; raise :class:`ConfigError` if there is no room for them."""
        pairs = list(zip(*unzip_pairs(rows), strict=True))
        for row, pair in enumerate(pairs):
            if not all(isinstance(text, str) for text in pair):
                raise TextError(f"pair {row} must be two texts, got {pair!r:.80}", row=row)
        self._format.check_room(options.prompt, self.limit(options))
        return self._format.rows(
            pairs,
            options.prompt,
            max_length=self.limit(options),
            num_threads=self.model.engine.num_threads,
        )

    def needs_tokens(self, options: ScoreOptions) -> bool:
        """Return True: the model answers after a pair's last token."""
        del options
        return True

    def wanted(self, options: ScoreOptions) -> tuple[LastLogits, ...]:  # type: ignore[override]
        """Return what the engine computes for a batch: the logits of the answers' tokens."""
        del options
        return (LastLogits(token_ids=self._answers),)

    def activated(self, found: Vectors, options: ScoreOptions) -> Vectors:
        """Return the scores of pairs, by the call's activation, from the logits of the answers.

        It is applied to the positive answer's logit minus the negative's, if there is one.
        """
        odds_B1 = found[:, :1] - found[:, 1:] if len(self._answers) > 1 else found
        if options.activation != "sigmoid":
            return SCORE_FUNCTIONS[options.activation](odds_B1)
        shares_B1 = 1.0 / (1.0 + np.exp(-odds_B1.astype(np.float64)))
        # An infinite logit is a damaged model, and no certain answer.
        return np.where(np.isfinite(odds_B1), shares_B1, np.nan).astype(np.float32)

    def describe(self, options: ScoreOptions) -> dict[str, Any]:
        """Return the answers and the format of pairs, which a run over files records."""
        return {
            **super().describe(options),
            "answers": list(self._answers),
            "format": self._format.describe(),
        }


class Ranked(TypedDict):
    """A document's index in the list, its score and, with ``return_documents``, its text."""

    corpus_id: int
    score: float
    text: NotRequired[str]


def check_top_k(top_k: int | None) -> None:
    """Raise :class:`InputError` unless ``top_k`` is a positive whole number or None."""
    if top_k is not None:
        check_positive(top_k, "top_k")


def order_documents(
    scores: Vectors, texts: list[str], *, top_k: int | None, return_documents: bool
) -> list[Ranked]:
    """Return the documents with the best scores, best first; equal scores stay in the order given.

    ``top_k``: the most documents; None: all.
    """
    best = [int(row) for row in np.argsort(-scores, kind="stable")[:top_k]]
    ranked = [Ranked(corpus_id=row, score=float(scores[row])) for row in best]
    if return_documents:
        for document in ranked:
            document["text"] = texts[document["corpus_id"]]
    return ranked


def is_pair(value: Any) -> bool:
    """Return whether a value is a single pair of texts, rather than several pairs."""
    paired = isinstance(value, (tuple, list)) and len(value) == 2
    return paired and isinstance(value[0], str) and isinstance(value[1], str)


def unzip_pairs(pairs: Iterable[object]) -> tuple[list[str], list[str]]:
    """Return the first texts of all pairs, and their second texts.

    Raises :class:`InputError` for an item that is no pair, with its row, and :class:`TextError`
    if a single text is given instead of pairs.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TextError(f"pairs must be pairs of texts, got one {type(pairs).__name__}")
    firsts, seconds = [], []
    for row, pair in enumerate(from_arrow(pairs)):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {row} must be two texts, got {pair!r:.80}", row=row)
        firsts.append(pair[0])
        seconds.append(pair[1])
    return firsts, seconds
