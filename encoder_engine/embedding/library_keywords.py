"""Keywords that scripts for sentence-transformers pass: taken with their meaning, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LibraryKeywords", "resolve_output"]

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


def resolve_output(
    method: str,
    keywords: Mapping[str, Any],
    *,
    output: str,
    convert_to_tensor: bool,
    device: str,
) -> Output:
    """Return the form of the vectors that the output and the library's keywords ask for.

    Raises :class:`InputError` for a value whose meaning another method has, by its name, and
    ``TypeError`` for an unknown keyword.
    """
    for name in keywords:
        if name not in LibraryKeywords.__annotations__:
            advice = nearest(name, [*LibraryKeywords.__annotations__, "batch_size", "prompt"])
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
                "or GPUs, see encode_dataset(workers=)"
            )
    if convert_to_tensor:
        return "torch"
    if not keywords.get("convert_to_numpy", True) and output == "numpy":
        raise InputError(
            "convert_to_numpy=False asks for a list of tensors, which is not implemented: pass "
            "convert_to_tensor=True for one tensor [N, D]"
        )
    return "torch" if output == "torch" else "numpy"


def _is_same(wanted: str, device: str) -> bool:
    """Return whether a device is the model's; ``"cuda"`` is any of its GPUs."""
    return wanted in (device, device.partition(":")[0])
