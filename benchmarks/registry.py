"""Finds the cases: every file below ``cases/`` has a ``case_specs()``."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from benchmarks import cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring.case import CaseSpec


# The cases of a quick run: first one of every group that a processor runs, then more of the groups
# that answer a user's first question; a slow machine may not get to these.
QUICK = (
    "embedding/minilm-float32-skewed",
    "static/sentences-float32",
    "prediction/text-classification-float32",
    "tokenizer/wordpiece-english",
    "calls/padded-lists",
    "pretraining/tiny",
    "finetuning/sst2",
    "encoder/mixed",
    "attention/forward",
    "linear/forward",
    "packed_linear/forward",
    "quantized_linear/forward",
    "requantized_linear/forward",
    "quantize_rows/forward",
    "layer_norm/forward",
    "layer_norm_quantized/forward",
    "rms_norm/forward",
    "bias_gelu/forward",
    "geglu/forward",
    "swiglu/forward",
    "rotary/forward",
    "token_embedding/forward",
    "pooling/forward",
    "masked_cross_entropy/training",
    "masked_cross_entropy_tiled/forward",
    "import/package",
    "drop_in/encode-skewed",
    "serving/minilm-float32-clients",
    "latency/minilm-float32",
    "cold_start/minilm-float32",
    "embedding/minilm-int8-skewed",
    "embedding/minilm-bfloat16-skewed",
    "tokenizer/wordpiece-batch-lists",
    "tokenizer/gpt2-english",
    "tokenizer/xlmr-multilingual",
    "tokenizer/bpe-code",
    "tokenizer/xlnet-english",
    "prediction/token-classification-float32",
    "finetuning/contrastive",
    "tokenizer/qwen2-load",
)


def all_cases() -> dict[str, CaseSpec]:
    """Return all cases by name, from all modules."""
    packages = pkgutil.walk_packages(cases.__path__, f"{cases.__name__}.")
    modules = sorted(
        (module.name for module in packages if not module.ispkg),
        key=lambda name: name.rpartition(".")[2],
    )
    specs = [
        replace(spec, module=name)
        for name in modules
        for spec in importlib.import_module(name).case_specs()
    ]
    by_name = {spec.name: spec for spec in specs}
    assert len(by_name) == len(specs), "two cases have one name"
    return by_name


def choose_cases(patterns: Sequence[str], device: str, *, smoke: bool = False) -> list[CaseSpec]:
    """Choose cases by name, by the part before the slash, or by a pattern such as ``*/short``.

    Without patterns: all cases of the device. In a ``smoke`` run, patterns also match cases of
    other devices. Raises ``LookupError`` for a pattern that matches no case.
    """
    anywhere = smoke and bool(patterns)
    known = {name: spec for name, spec in all_cases().items() if anywhere or device in spec.devices}
    if not patterns:
        return list(known.values())
    chosen: dict[str, CaseSpec] = {}
    for pattern in patterns:
        matching = {n: s for n, s in known.items() if _matches(n, pattern)}
        if not matching:
            raise LookupError(f"no case {pattern!r} on {device}; there are {', '.join(known)}")
        chosen |= matching
    return list(chosen.values())


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)
