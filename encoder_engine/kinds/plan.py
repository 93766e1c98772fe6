"""Describes all that decides a model's results, for digests and for records of runs over files."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.text.fingerprint import tokenizer_fingerprint

if TYPE_CHECKING:
    from encoder_engine.kinds.kind import Kind

__all__ = ["describe_results", "library_versions"]


def describe_results(kind: Kind, options: Any) -> dict[str, Any]:
    """Return model, tokenizer, options and versions, which decide the results, as JSON values.

    Settings that change only the speed (batches, threads) are left out. ``options``: the result of
    the kind's ``resolve``.
    """
    engine = kind.model.engine
    return {
        "model": {
            "fingerprint": engine.fingerprint(),
            "dtype": engine.dtype,
            "device": engine.device.partition(":")[0],
            "quantization": engine.quantization,
            "engine": engine.name,
            "max_seq_length": kind.limit(options),
            **kind.describe(options),
        },
        "tokenizer": {"fingerprint": tokenizer_fingerprint(kind.model.tokenizer)},
        "options": options.describe(),
        "versions": library_versions() | engine.versions(),
    }


def library_versions(shard_format: str = "npy") -> dict[str, str]:
    """Return the versions of the libraries that decide the bytes of results in a file format."""
    versions = {
        "encoder-engine": str(sys.modules["encoder_engine"].__version__),
        "numpy": np.__version__,
    }
    if shard_format != "npy":
        versions["pyarrow"] = importlib.metadata.version("pyarrow")
    if shard_format == "lance":
        versions["pylance"] = importlib.metadata.version("pylance")
    return versions
