"""Resolves device and dtype names such as ``"auto"``."""

from __future__ import annotations

import torch

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.inference import options

__all__ = ["check_quantizable", "resolve_device", "resolve_dtype"]

_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def resolve_device(device: str | torch.device, *, quantized: bool = False) -> torch.device:
    """Return the device of a name; ``"auto"``: CUDA if there is one and not for int8, else the CPU.

    Raises :class:`ConfigError` for a device that torch does not know or the machine lacks.
    """
    if isinstance(device, str) and device == "auto":
        on_gpu = torch.cuda.is_available() and not quantized
        return torch.device("cuda" if on_gpu else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    # torch reports an unknown or absent device by RuntimeError, AssertionError or others.
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used: {reason}") from error
    return resolved


def resolve_dtype(dtype: str | torch.dtype, *, quantized: bool = False) -> torch.dtype:
    """Return the floating-point dtype of a name; ``"auto"`` is float32.

    With int8, ``"auto"`` is bfloat16 where the CPU multiplies it, as in a compiled encoder: int8
    rounds more coarsely. Raises :class:`ConfigError` for another name or dtype.
    """
    if isinstance(dtype, torch.dtype):
        if dtype in _DTYPES.values():
            return dtype
    elif dtype == "auto":
        return _DTYPES[options.resolve_dtype("auto", quantized=quantized)]
    elif dtype in _DTYPES:
        return _DTYPES[dtype]
    raise ConfigError(f"dtype must be 'auto' or one of {', '.join(_DTYPES)}, got {dtype!r}")


def check_quantizable(device: torch.device, dtype: torch.dtype) -> None:
    """Raise :class:`UnsupportedFeatureError` for weights that cannot be quantized to int8."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        raise UnsupportedFeatureError(
            f"int8 is for float32 and bfloat16 on a CPU, not for {dtype} on {device}; load the "
            "encoder with device='cpu'"
        )
