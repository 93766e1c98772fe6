"""Keywords that scripts for sentence-transformers pass: taken with their meaning, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from encoder_engine.embedding.directory.stack import ACTIVATIONS
from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LibraryKeywords", "PredictKeywords", "resolve_activation", "resolve_output"]

Output = Literal["numpy", "torch"]


class LibraryKeywords(TypedDict, total=False):
    """Keywords of ``SentenceTransformer.encode`` beside the engine's own.

    convert_to_numpy: True, as by default.
    output_value: ``"sentence_embedding"``; ``"token_embeddings"`` is :meth:`encode_tokens`.
    device: the device that the model is on.
    pool, chunk_size: None; several processes are ``encode_dataset(workers=)``.
    """

    convert_to_numpy: bool
    output_value: str | None
    device: Any
    pool: None
    chunk_size: None


class PredictKeywords(TypedDict, total=False):
    """Keywords of ``CrossEncoder.predict`` and ``rank`` beside the engine's own.

    convert_to_numpy: True, as by default; not of ``rank``.
    apply_softmax: of a pair with one score, it changes nothing; not of ``rank``.
    activation_fn: ``torch.nn.Sigmoid()`` or ``torch.nn.Identity()``, else see ``activation``.
    device: the device that the model is on.
    pool, chunk_size: None; several processes are ``score_dataset(workers=)``.
    """

    convert_to_numpy: bool
    apply_softmax: bool | None
    activation_fn: Any
    device: Any
    pool: None
    chunk_size: None


def resolve_activation(activation: str | None, activation_fn: object) -> Any:
    """Return the name of the activation; None: the model's.

    Raises :class:`InputError` for both, and for another function than the two that have a name.
    """
    if activation_fn is None:
        return activation
    if activation is not None:
        raise InputError("give activation or activation_fn, not both")
    kind = type(activation_fn)
    name = ACTIVATIONS.get(f"{kind.__module__}.{kind.__qualname__}")
    if name not in ("sigmoid", "identity"):
        raise InputError(
            f"activation_fn={activation_fn!r} is not implemented: pass activation='sigmoid' or "
            "'identity', and apply the function to the scores of 'identity'"
        )
    return name


def resolve_output(
    method: str,
    keywords: Mapping[str, Any],
    *,
    output: str,
    convert_to_tensor: bool,
    device: str,
    known: type = LibraryKeywords,
    job: str = "encode_dataset",
) -> Output:
    """Return the form of the vectors that the output and the library's keywords ask for.

    known: the keywords of the method. job: its method of several processes.

    Raises :class:`InputError` for a value whose meaning another method has, by its name, and
    ``TypeError`` for an unknown keyword.
    """
    for name in keywords:
        if name not in known.__annotations__:
            advice = nearest(name, [*known.__annotations__, "batch_size", "prompt"])
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{advice}")
    if output not in ("numpy", "torch"):
        raise InputError(f"output must be 'numpy' or 'torch', got {output!r}")
    value = keywords.get("output_value", "sentence_embedding")
    if value == "token_embeddings":
        raise InputError(
            "output_value='token_embeddings' has a method of its own: encode_tokens(texts)"
        )
    if value != "sentence_embedding":
        raise InputError(
            f"output_value={value!r} is not implemented; encode(texts) returns sentence "
            "embeddings, encode_tokens(texts) token embeddings"
        )
    wanted = keywords.get("device")
    if wanted is not None and not _is_same(str(wanted), device):
        raise InputError(
            f"device={str(wanted)!r}, but the model is on {device}: choose the device at loading, "
            "from_pretrained(..., device=)"
        )
    for name in ("pool", "chunk_size"):
        if keywords.get(name) is not None:
            raise InputError(
                f"{name}= is not implemented: one process uses all threads; for several processes "
                f"or GPUs, see {job}(workers=)"
            )
    if convert_to_tensor:
        return "torch"
    if not keywords.get("convert_to_numpy", True) and output == "numpy":
        raise InputError(
            "convert_to_numpy=False asks for a list of tensors, which is not implemented: pass "
            "convert_to_tensor=True for one tensor of all rows"
        )
    return "torch" if output == "torch" else "numpy"


def _is_same(wanted: str, device: str) -> bool:
    """Return whether a device is the model's; ``"cuda"`` is any of its GPUs."""
    return wanted in (device, device.partition(":")[0])
