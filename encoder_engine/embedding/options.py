"""Options of one call: as given, and resolved before the first text is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from encoder_engine.errors import InputError
from encoder_engine.strings import find_surrogate
from encoder_engine.vectors.precision import check_precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.vectors.precision import Precision

OnTruncation = Literal["warn", "ignore", "error"]


class EncodeKeywords(TypedDict, total=False):
    """The keywords that every door of an embedder passes on; :class:`EncodeCall` says the defaults.

    ``prompt`` or ``prompt_name`` is put before every text. ``normalize_embeddings`` True or False
    makes vectors of length 1 or leaves them as pooled; None does what the directory says.
    ``truncate_dim`` keeps the leading features and, if normalised, normalises those.
    ``precision``: see :func:`quantize_vectors`. ``batch_tokens``: tokens of a batch at most.
    """

    prompt: str | None
    prompt_name: str | None
    normalize_embeddings: bool | None
    truncate_dim: int | None
    precision: Precision
    batch_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class EncodeCall:
    """The options of one call, as they were given: :class:`EncodeKeywords` and ``on_truncation``.

    ``on_truncation``: what happens where texts are cut to ``max_seq_length``: one
    :class:`TruncationWarning`, nothing, or a :class:`SequenceLengthError`.
    """

    prompt: str | None = None
    prompt_name: str | None = None
    normalize_embeddings: bool | None = None
    truncate_dim: int | None = None
    precision: Precision = "float32"
    batch_tokens: int | None = None
    on_truncation: OnTruncation = "ignore"


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """Resolved options: ``prompt`` stands before every text; ``dimension`` counts features kept."""

    prompt: str
    num_prompt_tokens: int
    normalized: bool
    dimension: int
    precision: Precision
    batch_tokens: int
    on_truncation: OnTruncation


def resolve_prompt(
    prompt: str | None, prompt_name: str | None, prompts: Mapping[str, str], default: str | None
) -> str:
    """Choose the text put before every text. Raises :class:`InputError` for an unknown name."""
    if prompt is not None:
        if prompt_name is not None:
            raise InputError(
                f"give prompt or prompt_name, not both (got {prompt!r} and {prompt_name!r})"
            )
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a str, got {type(prompt).__name__}")
        if find_surrogate(prompt) is not None:
            raise InputError(f"prompt holds a lone surrogate, which is no character: {prompt!a}")
        return prompt
    name = default if prompt_name is None else prompt_name
    if name is None:
        return ""
    if name not in prompts:
        raise InputError(f"no prompt {name!r}; this model has {', '.join(prompts)}")
    return prompts[name]


def resolve_dimension(truncate_dim: int | None, stated: int | None, full: int) -> int:
    """Choose how many leading features to keep: the call's, else the directory's, else all."""
    wanted = stated if truncate_dim is None else truncate_dim
    if wanted is None:
        return full
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= full:
        raise InputError(f"truncate_dim must lie in 1..{full}, the vectors' width, got {wanted!r}")
    return wanted


def resolve_batch_tokens(batch_tokens: int | None, default: int) -> int:
    """Choose the token budget of a batch."""
    if batch_tokens is None:
        return default
    if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int) or batch_tokens < 1:
        raise InputError(f"batch_tokens must be a positive whole number, got {batch_tokens!r}")
    return batch_tokens


def check_options(options: EncodeOptions) -> EncodeOptions:
    """Raise :class:`InputError` for a name nobody knows."""
    check_precision(options.precision)
    check_on_truncation(options.on_truncation)
    return options


def check_on_truncation(choice: str) -> None:
    """Raise :class:`InputError` for an unknown way to treat texts that are too long."""
    if choice not in ("warn", "ignore", "error"):
        raise InputError(f"on_truncation must be 'warn', 'ignore' or 'error', got {choice!r}")
