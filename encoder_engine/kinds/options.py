"""The options of a call, validated before the first row is read, and shared validations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.strings import find_surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.vectors.precision import Precision

__all__ = [
    "CallKeywords",
    "EncodeKeywords",
    "OnTruncation",
    "Options",
    "Route",
    "check_on_truncation",
    "check_positive",
    "check_route",
    "document_prompt",
    "query_prompt",
    "resolve_dimension",
    "resolve_prompt",
    "route_of",
    "smallest",
    "token_limit",
]

OnTruncation = Literal["warn", "ignore", "error"]
Route = Literal["query", "document"]
# The names under which directories keep the prompt of documents, the first one first.
_DOCUMENT_NAMES = ("document", "passage", "corpus")


class CallKeywords(TypedDict, total=False):
    """The keywords of every call that affect the results or their speed.

    prompt: a string that is put before every text.
    prompt_name: instead of ``prompt``, the name of one of the directory's prompts.
    batch_tokens: the most tokens of a batch.
    batch_size: the most texts of a batch, as in sentence-transformers; None: no limit.
    """

    prompt: str | None
    prompt_name: str | None
    batch_tokens: int | None
    batch_size: int | None


class EncodeKeywords(CallKeywords, total=False):
    """The keywords common to every method of an embedder that computes dense vectors.

    normalize_embeddings: True scales vectors to length 1, False leaves them as pooled; None: the
        directory's setting.
    truncate_dim: the number of leading features to keep; vectors that are normalized are
        normalized afterwards.
    precision: see :func:`quantize_vectors`.

    Others: see :class:`CallKeywords`.
    """

    normalize_embeddings: bool | None
    truncate_dim: int | None
    precision: Precision


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one call with every default filled in; kinds add their own.

    prompt: the text put before every text.
    batch_tokens: the most tokens of a batch.
    batch_size: the most texts of a batch; None: no limit.
    on_truncation: for texts that are truncated, ``"warn"`` issues one :class:`TruncationWarning`,
        ``"ignore"`` none, ``"error"`` raises :class:`SequenceLengthError`.
    dimension: the number of features of a vector, of entries of the vocabulary, or of scores.
    num_prompt_tokens: the number of leading tokens that pooling leaves out.
    normalized: whether vectors are scaled to Euclidean length 1.
    route: whether texts are queries or documents, for a model that treats them differently; None:
        documents, with the model's own limit of tokens.
    """

    prompt: str
    batch_tokens: int
    batch_size: int | None
    on_truncation: OnTruncation
    dimension: int
    num_prompt_tokens: int = 0
    normalized: bool = False
    precision: Precision = "float32"
    route: Route | None = None

    def describe(self) -> dict[str, Any]:
        """Return the options that decide results, as JSON values; runs over files record them."""
        return {
            "prompt": self.prompt,
            "num_prompt_tokens": self.num_prompt_tokens,
            "normalized": self.normalized,
            "dimension": self.dimension,
            "precision": self.precision,
            "on_truncation": self.on_truncation,
        }


def resolve_prompt(
    prompt: str | None, prompt_name: str | None, prompts: Mapping[str, str], default: str | None
) -> str:
    """Return the prompt that is put before every text of a call; "" without one.

    ``default``: the name of the prompt if the call gives none. Raises :class:`InputError` for a
    name that is not in ``prompts``, for a prompt and a name together, and for a bad value.
    """
    if prompt is not None:
        if prompt_name is not None:
            raise InputError(
                f"give prompt or prompt_name, not both (got {prompt!r} and {prompt_name!r})"
            )
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
        if find_surrogate(prompt) is not None:
            raise InputError(f"prompt holds a lone surrogate, which is not a character: {prompt!a}")
        return prompt
    name = default if prompt_name is None else prompt_name
    if name is None:
        return ""
    if not isinstance(name, str):
        raise InputError(f"prompt_name must be a str, got {type(name).__name__}")
    if name not in prompts:
        raise InputError(f"no prompt {name!r}; this model has {', '.join(prompts)}")
    return prompts[name]


def resolve_dimension(truncate_dim: int | None, stated: int | None, full: int) -> int:
    """Return the number of leading features to keep of a vector.

    ``truncate_dim``: the call's; else ``stated``, the directory's; else ``full``: all.
    Raises :class:`InputError` for a number that is not from 1 to ``full``.
    """
    wanted = stated if truncate_dim is None else truncate_dim
    if wanted is None:
        return full
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= full:
        raise InputError(f"truncate_dim must lie in 1..{full}, the vectors' width, got {wanted!r}")
    return wanted


def check_positive(value: object, name: str) -> int:
    """Return a value that is a positive whole number. Raises :class:`InputError` for any other."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a positive whole number, got {value!r}")
    return value


def check_route(route: object) -> None:
    """Raise :class:`InputError` for a route that is not query, document or None."""
    if route not in (None, "query", "document"):
        raise InputError(f"task must be 'query' or 'document', got {route!r}")


def route_of(request: Any) -> Route | None:
    """Return whether a server's request has queries or documents; None: it does not say.

    ``input_type`` says so, or else the name of the prompt.
    """
    named: Route | None = request.input_type
    if named is None and request.prompt_name in ("query", "document"):
        named = request.prompt_name
    return named


def check_on_truncation(choice: str) -> None:
    """Raise :class:`InputError` for an ``on_truncation`` that is not warn, ignore or error."""
    if choice not in ("warn", "ignore", "error"):
        raise InputError(f"on_truncation must be 'warn', 'ignore' or 'error', got {choice!r}")


def query_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of a model's prompt for queries; None: the model has none."""
    return "query" if "query" in prompts else None


def document_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of a model's prompt for documents; None: the model has none.

    As in sentence-transformers, every directory has a prompt ``document``, which is empty unless
    the directory states it.
    """
    return next((name for name in _DOCUMENT_NAMES if name in prompts), None)


def token_limit(value: int | None, positions: int | None, *, least: int = 1) -> int | None:
    """Return the most tokens of a text, at most the model's ``positions``; None: no limit.

    Raises :class:`InputError` for a ``value`` that is not a whole number of at least ``least``.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not whole or value < least):
        raise InputError(
            f"max_seq_length must be a whole number of at least {least}, got {value!r}"
        )
    return smallest(value, positions)


def smallest(*limits: int | None) -> int | None:
    """Return the smallest of the limits that are not None; None: all are None, so no limit."""
    return min((limit for limit in limits if limit is not None), default=None)
