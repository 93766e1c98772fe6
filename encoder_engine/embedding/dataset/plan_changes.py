"""Differences between a folder's plan and a run's, in the names of options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.records import describe_changes

if TYPE_CHECKING:
    from encoder_engine.records import Difference

# How a key of the plan is set: by the option of the command line (in Python without the dashes).
_OPTIONS = {
    "model.dtype": "--dtype",
    "model.device": "--device",
    "model.quantization": "--quantization",
    "model.engine": "--engine",
    "model.pooling": "--pooling",
    "model.layers": "layers=",
    "model.max_seq_length": "--max-seq-length",
    "options.prompt": "--prompt",
    "options.normalized": "--normalize",
    "options.dimension": "--truncate-dim",
    "options.precision": "--precision",
    "options.on_truncation": "--on-truncation",
    "options.column": "--column",
    "options.id_column": "--id-column",
    "options.max_characters": "--max-characters",
    "options.unique_ids": "--unique-ids",
    "options.shard_rows": "--shard-rows",
    "options.shard_format": "--shard-format",
    "options.task": "--task",
    "options.pair_column": "--pair-column",
    "options.keep": "--keep",
    "options.max_active_dims": "--max-active-dims",
    "options.activation": "--activation",
    "model.sparse_pooling": "pooling=",
    "model.rules": "rules=",
}
_FINGERPRINTS = {"model.fingerprint": "model", "tokenizer.fingerprint": "tokenizer"}
_SHOWN_DIGITS = 12


def plan_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe what differs between a folder's plan and a run's; empty: the run may resume."""
    return describe_changes(before, now, _describe_change)


def _describe_change(found: Difference) -> str:
    """Describe a difference: an option by its name, with both values."""
    if found.name in _FINGERPRINTS:
        digits = [str(value)[:_SHOWN_DIGITS] for value in (found.before, found.now)]
        return (
            f"another {_FINGERPRINTS[found.name]} (--model; its SHA-256 was {digits[0]}..., is "
            f"{digits[1]}...)"
        )
    if found.name in _OPTIONS:
        key = found.name.rpartition(".")[2]
        return str(found._replace(name=f"{key} ({_OPTIONS[found.name]})"))
    return str(found)
