"""Validates the options of a compiled encoder: dtype, quantization, threads, layers."""

from __future__ import annotations

import math

from encoder_engine import _native
from encoder_engine.errors import ConfigError, InputError

__all__ = ["check_layer_weights", "check_threads", "resolve_dtype"]

DTYPES = ("float32", "bfloat16")
# Instruction sets that multiply bfloat16.
BFLOAT16_SETS = ("avx512_bf16", "amx", "bf16")
# The extension starts no more by itself; an OpenMP runtime ends a process that asks for too many.
MOST_THREADS = 1024


def resolve_dtype(dtype: str, *, quantized: bool) -> str:
    """Return the dtype's name; for ``"auto"``, float32, and with int8 bfloat16 if the CPU has it.

    Raises :class:`ConfigError`.
    """
    name = str(dtype).removeprefix("torch.")
    if name == "auto":
        supported = _native.instruction_set() in BFLOAT16_SETS
        return "bfloat16" if quantized and supported else "float32"
    if name not in DTYPES:
        raise ConfigError(
            f"dtype must be 'auto' or one of {', '.join(DTYPES)} for a compiled encoder, got "
            f"{dtype!r}"
        )
    return name


def check_threads(num_threads: object) -> int:
    """Return the number of threads for calls, checked; for None, the default number.

    Raises :class:`ConfigError`.
    """
    if num_threads is None:
        return _native.default_threads()
    if (
        isinstance(num_threads, bool)
        or not isinstance(num_threads, int)
        or not 1 <= num_threads <= MOST_THREADS
    ):
        raise ConfigError(
            f"num_threads must be a whole number above 0 and at most {MOST_THREADS}, got "
            f"{num_threads!r}"
        )
    return num_threads


def check_layer_weights(
    layers: tuple[tuple[int, float], ...], num_layers: int
) -> tuple[tuple[int, float], ...]:
    """Return the (layer, weight) pairs by ascending layer; weights of a repeated layer are added.

    Raises :class:`InputError` for a layer that does not exist, for a weight that is not finite, and
    without any pair.
    """
    weights: dict[int, float] = {}
    for layer, weight in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer <= num_layers:
            raise InputError(
                f"there is no layer {layer!r}; 0 are the embeddings, {num_layers} the last"
            )
        if not math.isfinite(weight):
            raise InputError(f"the weight of layer {layer} must be a finite number, got {weight!r}")
        weights[layer] = weights.get(layer, 0.0) + weight
    if not weights:
        raise InputError("layers is empty; name at least one")
    return tuple(sorted(weights.items()))
