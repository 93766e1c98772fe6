"""Options of one call, as given and as resolved before the first text is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest
from encoder_engine.strings import find_surrogate
from encoder_engine.vectors.precision import check_precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.vectors.precision import Precision

OnTruncation = Literal["warn", "ignore", "error"]


class EncodeKeywords(TypedDict, total=False):
    """The keywords common to every method of an embedder; defaults: see :class:`EncodeCall`.

    prompt, prompt_name: a text, or the name of the directory's, put before every text.
    normalize_embeddings: True scales vectors to length 1, False leaves them as pooled; None: the
        directory's setting.
    truncate_dim: keeps the leading features; normalized vectors are normalized after the cut.
    precision: see :func:`quantize_vectors`.
    batch_tokens: the most tokens of a batch.
    batch_size: the most texts of a batch, as sentence-transformers counts; None: no limit.
    """

    prompt: str | None
    prompt_name: str | None
    normalize_embeddings: bool | None
    truncate_dim: int | None
    precision: Precision
    batch_tokens: int | None
    batch_size: int | None


@dataclass(frozen=True, kw_only=True)
class EncodeCall:
    """The options of one call as given: :class:`EncodeKeywords` and ``on_truncation``.

    ``on_truncation``: for texts truncated to ``max_seq_length``, ``"warn"`` issues one
    :class:`TruncationWarning`, ``"ignore"`` none, ``"error"`` raises :class:`SequenceLengthError`.
    """

    prompt: str | None = None
    prompt_name: str | None = None
    normalize_embeddings: bool | None = None
    truncate_dim: int | None = None
    precision: Precision = "float32"
    batch_tokens: int | None = None
    batch_size: int | None = None
    on_truncation: OnTruncation = "ignore"

    @classmethod
    def of(
        cls, method: str, keywords: EncodeKeywords, on_truncation: OnTruncation = "ignore"
    ) -> EncodeCall:
        """Collect a method's keywords; raises ``TypeError`` for one that it does not take."""
        for name in keywords:
            if name not in EncodeKeywords.__annotations__:
                advice = nearest(name, EncodeKeywords.__annotations__)
                raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{advice}")
        return cls(on_truncation=on_truncation, **keywords)


@dataclass(frozen=True, kw_only=True)
class EncodeOptions:
    """The options of one call with every default filled in.

    prompt: the text put before every text.
    num_prompt_tokens: leading tokens that the pooling leaves out.
    normalized: vectors have Euclidean length 1.
    dimension: features of a vector after ``truncate_dim``.
    batch_size: the most texts of a batch; None: no limit.
    """

    prompt: str
    num_prompt_tokens: int
    normalized: bool
    dimension: int
    precision: Precision
    batch_tokens: int
    on_truncation: OnTruncation
    batch_size: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return what decides the vectors, as values of JSON: the plan of a job records it."""
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
    """Choose the text put before every text. Raises :class:`InputError` for an unknown name."""
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
    return check_positive(batch_tokens, "batch_tokens")


def check_positive(value: object, name: str) -> int:
    """Return a positive whole number. Raises :class:`InputError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a positive whole number, got {value!r}")
    return value


def check_options(options: EncodeOptions) -> EncodeOptions:
    """Return the options. Raises :class:`InputError` for values that there are not."""
    # sentence-transformers' batch_size stands at this place: 1 is no True.
    if options.normalized not in (True, False) or type(options.normalized) in (int, float):
        raise InputError(f"normalize_embeddings must be a bool or None, got {options.normalized!r}")
    check_precision(options.precision)
    check_on_truncation(options.on_truncation)
    if options.batch_size is not None:
        check_positive(options.batch_size, "batch_size")
    return options


def check_on_truncation(choice: str) -> None:
    """Raise :class:`InputError` for an unknown ``on_truncation``."""
    if choice not in ("warn", "ignore", "error"):
        raise InputError(f"on_truncation must be 'warn', 'ignore' or 'error', got {choice!r}")
