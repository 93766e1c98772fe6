"""Replaces the methods of a fast tokenizer of transformers, and restores them."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from encoder_engine.errors import (
    EncoderEngineError,
    EncoderEngineWarning,
    MissingDependencyError,
    UnsupportedFeatureError,
)
from encoder_engine.integrations.tokenizers.native_calls import NativeCalls
from encoder_engine.warn import warn_caller

__all__ = ["accelerate_tokenizer", "is_tokenizer", "restore_tokenizer", "try_tokenizer"]

Kind = TypeVar("Kind")
REPLACED = {"_encode_plus": "encode", "pad": "pad", "_add_tokens": "add_tokens"}
# What makes a copy or a pickle, which gets methods of its own: those here know their tokenizer.
REDUCE = "__reduce_ex__"
# Methods that a class must have from TokenizersBackend, or it encodes in a way of its own.
OWN = ("__call__", "_encode_plus", "_convert_encoding", "set_truncation_and_padding", "_add_tokens")


def accelerate_tokenizer(tokenizer: Kind) -> Kind:
    """Have this engine encode the calls of a fast tokenizer; return the tokenizer.

    Results keep their class, values and shapes. :func:`restore_tokenizer` undoes.
    Raises :class:`UnsupportedFeatureError` for a tokenizer that this engine does not encode.
    """
    backend = _backend()
    kind: Any = type(tokenizer)
    if not isinstance(tokenizer, backend):
        raise UnsupportedFeatureError(f"{kind.__name__} is not a fast tokenizer of transformers")
    for name in OWN:
        if getattr(kind, name) is not getattr(backend, name):
            raise UnsupportedFeatureError(
                f"{kind.__name__} has a {name} of its own, which may encode in any way"
            )
    calls = NativeCalls(tokenizer)
    calls.read()
    for name, ours in REPLACED.items():
        if getattr(kind, name) is getattr(backend, name):
            vars(tokenizer)[name] = getattr(calls, ours)
    vars(tokenizer)[REDUCE] = partial(_reduce, tokenizer)
    return tokenizer


def restore_tokenizer(tokenizer: Kind) -> Kind:
    """Restore a tokenizer's own methods; a tokenizer that is not accelerated is unchanged."""
    members = getattr(tokenizer, "__dict__", {})
    for name in REPLACED:
        if isinstance(getattr(members.get(name), "__self__", None), NativeCalls):
            del members[name]
            members.pop(REDUCE, None)
    return tokenizer


def _reduce(tokenizer: Any, protocol: Any) -> tuple[Any, ...]:
    """Return a tokenizer's ``__reduce_ex__``: a copy is made as usual, then accelerated again."""
    parts: Any = object.__reduce_ex__(tokenizer, protocol)
    make, arguments, state = parts[:3]
    kept = {name: value for name, value in state.items() if name not in (*REPLACED, REDUCE)}
    return _make_again, (make, arguments, kept)


def _make_again(make: Any, arguments: Any, state: dict[str, Any]) -> Any:
    made = make(*arguments)
    vars(made).update(state)
    return accelerate_tokenizer(made)


def try_tokenizer(tokenizer: Any) -> None:
    """Accelerate a model's tokenizer; where that is impossible, warn and give the reason."""
    if is_tokenizer(tokenizer):
        try:
            accelerate_tokenizer(tokenizer)
        except (EncoderEngineError, NotImplementedError) as error:
            message = f"the tokenizer stays transformers' own: {error}"
            passed_on = ("encoder_engine", "sentence_transformers", "transformers")
            warn_caller(EncoderEngineWarning(message), passed_on=passed_on)


def is_tokenizer(value: object) -> bool:
    """Return whether a value is a tokenizer of transformers, fast or not."""
    return any(kind.__name__ == "PreTrainedTokenizerBase" for kind in type(value).__mro__)


def _backend() -> Any:
    try:
        from transformers.tokenization_utils_tokenizers import TokenizersBackend
    except ImportError:
        raise MissingDependencyError(
            "accelerating a tokenizer", library="transformers", extra="transformers"
        ) from None
    return TokenizersBackend
