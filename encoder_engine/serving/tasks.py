"""Splits a model's methods into two steps: tokenize on admission, compute in batches.

Each task of a model is a pair of functions: ``prepare`` tokenizes the texts of a request and fixes
their options, ``compute`` embeds or scores rows of any requests with equal options. Both are parts
of the model's own methods, so a served text gets the same bytes as a direct call. An option that a
task does not use is refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from encoder_engine.embedding import (
    CausalRanker,
    Embedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
)
from encoder_engine.embedding.hybrid import HybridEmbedder
from encoder_engine.embedding.multi_vector import TokensJob
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.prompts import document_prompt, query_prompt
from encoder_engine.embedding.static.embedder import StaticEmbedder
from encoder_engine.embedding.static.parts import TokenizedTexts
from encoder_engine.embedding.steps.calls import ScoreCall, SparseCall
from encoder_engine.embedding.steps.scores import softmax
from encoder_engine.embedding.steps.token_vectors import embed_token_window
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import TokenizedWindow, tokenize_texts
from encoder_engine.embedding.token_weights import tokenize_weighed, weigh_rows
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.heads import label_function
from encoder_engine.serving.rows import JoinedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.embedding.engines.engine import Activation
    from encoder_engine.embedding.options import OnTruncation
    from encoder_engine.embedding.steps.window import WindowRows

__all__ = [
    "TASKS",
    "CallOptions",
    "OptionError",
    "Steps",
    "Task",
    "Text",
    "check_prompt",
    "steps_of",
]

Task = Literal["embed", "sparse", "tokens", "rank", "classify"]
TASKS: tuple[Task, ...] = ("embed", "sparse", "tokens", "rank", "classify")
# A text, a pair, or the token ids of a text, int32 [n].
Text = str | tuple[str, str] | np.ndarray[Any, np.dtype[np.int32]]


class CallOptions(NamedTuple):
    """The options of a request; each task reads some, and refuses the others.

    prompt_name: the name of a prompt of the model; None: that of ``input_type``, or the default.
    input_type: ``"query"`` or ``"document"``.
    normalize: vectors have length 1; None: the model's setting.
    dimensions: the leading features to keep; None: the model's setting.
    refuses_long: a text longer than the model's limit is an error, else it is cut; None: the
        service's setting.
    raw_scores: scores are logits.
    truncation_side: which end of a long text is cut; None: the tokenizer's.
    """

    prompt_name: str | None = None
    input_type: Literal["query", "document"] | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    refuses_long: bool | None = None
    raw_scores: bool = False
    truncation_side: Literal["left", "right"] | None = None

    @property
    def on_truncation(self) -> OnTruncation:
        """The ``on_truncation`` of the model's own methods."""
        return "error" if self.refuses_long else "ignore"


class OptionError(InputError):
    """An option of a request is wrong; ``param`` is its name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class Steps(NamedTuple):
    """A task of a model.

    resolve: the options of a request as the model's methods resolve them.
    prepare: tokenizes texts.
    compute: results of rows, one a row.
    """

    resolve: Callable[[CallOptions], Any]
    prepare: Callable[[list[Any], Any], WindowRows]
    compute: Callable[[TokenizedWindow, Any], Any]


def steps_of(model: Any) -> dict[Task, Steps]:
    """Return the tasks of a model. Raises :class:`UnsupportedFeatureError` for any other object."""
    if isinstance(model, Embedder):
        return {
            "embed": Steps(
                partial(_encode_options, model), partial(_rows, model), partial(_vectors, model)
            ),
            "tokens": Steps(
                partial(_token_options, model), partial(_rows, model), partial(_tokens, model)
            ),
        }
    if isinstance(model, HybridEmbedder):
        return _hybrid_steps(model)
    if isinstance(model, StaticEmbedder):
        return {
            "embed": Steps(
                partial(_encode_options, model),
                partial(_static_rows, model),
                partial(_static_vectors, model),
            )
        }
    if isinstance(model, MultiVectorEmbedder):
        return {"tokens": Steps(partial(_kind_options, model), *_by_kind(model))}
    if isinstance(model, SparseEmbedder):
        return {
            "sparse": Steps(
                partial(_sparse_options, model),
                partial(_sparse_rows, model),
                partial(_sparse, model),
            )
        }
    if isinstance(model, CausalRanker):
        steps = Steps(
            partial(_score_options, model), partial(_rows, model), partial(_scores, model)
        )
        return {"rank": steps}
    if isinstance(model, Ranker):
        steps = Steps(
            partial(_score_options, model), partial(_texts_or_pairs, model), partial(_scores, model)
        )
        classify = Steps(
            partial(_label_options, model),
            lambda texts, options: _texts_or_pairs(model, texts, options[0]),
            partial(_labels, model),
        )
        return (
            {"rank": steps, "classify": classify}
            if model.num_labels == 1
            else {"classify": classify}
        )
    raise UnsupportedFeatureError(
        f"{type(model).__name__} cannot be served; serve an Embedder, a StaticEmbedder, a "
        "SparseEmbedder, a MultiVectorEmbedder, a HybridEmbedder or a Ranker"
    )


def _refuse(options: CallOptions, names: tuple[str, ...], kind: str) -> None:
    """Raise :class:`InputError` for a given option that this kind of result does not use."""
    for name in names:
        if getattr(options, name) not in (None, False):
            raise OptionError(name, f"{name} has no meaning for {kind}; leave it out")


def check_prompt(prompts: Mapping[str, str], name: str) -> None:
    """Raise :class:`InputError` for an unknown prompt.

    The message does not repeat the name, which may be a text. TEI's clients read the known names
    from between the brackets.
    """
    if name not in prompts:
        raise OptionError(
            "prompt_name", f"no prompt has this name. Available prompts: [{', '.join(prompts)}]"
        )


def _prompt_name(prompts: Mapping[str, str], options: CallOptions) -> str | None:
    """Return the prompt named by ``prompt_name`` or ``input_type``, or the default.

    Raises :class:`InputError` for an unknown name; the message does not repeat the name, which may
    be a text.
    """
    name = options.prompt_name
    if name is not None:
        check_prompt(prompts, name)
    if name is not None or options.input_type is None:
        return name
    return query_prompt(prompts) if options.input_type == "query" else document_prompt(prompts)


def _rows(model: Any, texts: list[str], options: Any) -> WindowRows:
    rows: WindowRows = model.tokenize_window(texts, 0, options).encoding
    return rows


def _encode_options(model: Embedder | StaticEmbedder, options: CallOptions) -> Any:
    _refuse(options, ("raw_scores",), "vectors")
    if options.dimensions is not None and not 1 <= options.dimensions <= model.dimension:
        raise OptionError(
            "dimensions",
            f"dimensions must lie in 1..{model.dimension}, got {options.dimensions}",
        )
    return model.resolve(
        EncodeCall(
            prompt_name=_prompt_name(model.prompts, options),
            normalize_embeddings=options.normalize,
            truncate_dim=options.dimensions,
            on_truncation=options.on_truncation,
        )
    )


def _vectors(model: Embedder, window: TokenizedWindow, options: Any) -> Any:
    return model.encode_window(window, options).vectors


def _static_rows(model: StaticEmbedder, texts: list[str], options: Any) -> WindowRows:
    tokenized = model.tokenize_window(texts, 0, options)
    encoding = tokenized.encoding
    return JoinedRows(
        ids=encoding.ids,
        cu_seqlens=encoding.cu_seqlens,
        type_ids=encoding.type_ids,
        has_types=False,
        truncated=tokenized.truncated,
    )


def _static_vectors(model: StaticEmbedder, window: TokenizedWindow, options: Any) -> Any:
    rows: Any = window.encoding
    cut = np.zeros(len(rows), dtype=np.bool_)
    tokenized = TokenizedTexts(encoding=rows, first_row=0, cut=cut, seconds=0.0)
    return model.encode_window(tokenized, options).vectors


def _token_options(model: Embedder, options: CallOptions) -> Any:
    _refuse(options, ("dimensions", "raw_scores"), "vectors of tokens")
    return model.resolve(
        EncodeCall(
            prompt_name=_prompt_name(model.prompts, options),
            normalize_embeddings=bool(options.normalize),
            on_truncation=options.on_truncation,
        )
    )


def _tokens(model: Embedder, window: TokenizedWindow, options: Any) -> Any:
    return _each(embed_token_window(model, window, options))


def _each(found: Any) -> list[Any]:
    return [found[row] for row in range(len(found))]


def _hybrid_steps(model: HybridEmbedder) -> dict[Task, Steps]:
    """Return the tasks of a model with three outputs; a task computes only its own output."""
    embedder = model.embedder

    def other_options(options: CallOptions) -> Any:
        kind = "sparse vectors and vectors of tokens of this model"
        _refuse(options, ("dimensions", "normalize", "raw_scores"), kind)
        return embedder.resolve(
            EncodeCall(
                prompt_name=_prompt_name(embedder.prompts, options),
                on_truncation=options.on_truncation,
            )
        )

    def sparse(window: TokenizedWindow, options: Any) -> Any:
        found = model.encode_window(window, options, ("sparse",)).sparse
        assert found is not None
        return [found.row(row) for row in range(len(found))]

    def tokens(window: TokenizedWindow, options: Any) -> Any:
        return _each(model.encode_window(window, options, ("tokens",)).tokens)

    rows = partial(_rows, embedder)
    return {
        "embed": Steps(partial(_encode_options, embedder), rows, partial(_vectors, embedder)),
        "sparse": Steps(other_options, rows, sparse),
        "tokens": Steps(other_options, rows, tokens),
    }


def _sparse_options(model: SparseEmbedder, options: CallOptions) -> Any:
    _refuse(options, ("dimensions", "normalize", "raw_scores"), "sparse vectors")
    call = SparseCall(
        prompt_name=_prompt_name(model.settings.prompts, options),
        on_truncation=options.on_truncation,
        route=options.input_type,
    )
    return model.resolve(call)


def _sparse_rows(model: SparseEmbedder, texts: list[str], options: Any) -> WindowRows:
    if options.route == "document" or model.query_weights is None:
        return _rows(model, texts, options)
    encoding = tokenize_weighed(model.query_weights, texts, options.prompt)
    notice = TruncationNotice(options.on_truncation, limit=model.query_weights.max_length)
    notice.observe(np.asarray(encoding.truncated), 0)
    return encoding


def _sparse(model: SparseEmbedder, window: TokenizedWindow, options: Any) -> Any:
    if options.route == "document" or model.query_weights is None:
        found = model.encode_window(window, options).vectors
    else:
        found = weigh_rows(model.query_weights, window.encoding, options.max_active_dims)
    return [found.row(row) for row in range(len(found))]


def _kind_options(model: MultiVectorEmbedder, options: CallOptions) -> Any:
    _refuse(options, ("dimensions", "raw_scores"), "vectors of tokens of this model")
    if options.normalize is not None and options.normalize != model.normalized:
        raise InputError(
            f"this model's vectors are {'' if model.normalized else 'not '}normalized; leave "
            "normalize out"
        )
    named = (options.prompt_name, options.input_type)
    kinds = {name for name in named if name is not None} or {"document"}
    if len(kinds) > 1 or not kinds <= {"query", "document"}:
        raise InputError(
            "this model has the prompts query and document; give one, as prompt_name or input_type"
        )
    (kind,) = kinds
    call = EncodeCall(
        prompt_name=kind,
        normalize_embeddings=model.normalized,
        on_truncation=options.on_truncation,
    )
    return kind, model.embedder.resolve(call)


def _by_kind(model: MultiVectorEmbedder) -> tuple[Any, Any]:
    jobs = {"document": TokensJob(model, "document"), "query": TokensJob(model, "query")}

    def prepare(texts: list[str], options: Any) -> WindowRows:
        return _rows(jobs[options[0]], texts, options[1])

    def compute(window: TokenizedWindow, options: Any) -> Any:
        return _each(jobs[options[0]].encode_window(window, options[1]).vectors)

    return prepare, compute


def _score_options(
    model: Ranker, options: CallOptions, activation: Activation | None = None
) -> Any:
    _refuse(options, ("input_type", "dimensions", "normalize"), "scores")
    return model.resolve(
        ScoreCall(
            prompt_name=_prompt_name(model.settings.prompts, options),
            activation="identity" if options.raw_scores else activation,
            on_truncation=options.on_truncation,
        )
    )


def _label_options(model: Ranker, options: CallOptions) -> Any:
    """Return the options of scores, and whether softmax follows."""
    config = model.model.config
    # sentence-transformers states an activation; transformers the kind of labels.
    stated = model.num_labels == 1 or model.activation != "identity"
    if config.get("problem_type") is None and stated:
        return _score_options(model, options), False
    function = label_function(config)
    scores = _score_options(model, options, "identity" if function == "softmax" else function)
    return scores, function == "softmax" and not options.raw_scores


def _labels(model: Ranker, window: TokenizedWindow, options: Any) -> Any:
    scores = _scores(model, window, options[0])
    return softmax(scores) if options[1] else scores


def _texts_or_pairs(model: Ranker, texts: list[Text], options: Any) -> WindowRows:
    """Tokenize pairs, or texts that are classified alone."""
    if not all(isinstance(text, str) for text in texts):
        return _rows(model, texts, options)  # type: ignore[arg-type]
    return tokenize_texts(
        model.tokenizer,
        texts,  # type: ignore[arg-type]
        0,
        prompt=options.prompt,
        num_prompt_tokens=0,
        max_length=model.max_seq_length,
        num_threads=model.engine.num_threads,
        notice=TruncationNotice(options.on_truncation, limit=model.max_seq_length),
    ).encoding


def _scores(model: Ranker, window: TokenizedWindow, options: Any) -> Any:
    return model.encode_window(window, options).vectors
