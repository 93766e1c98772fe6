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


# A version without engines packed the dense layers of these dtypes on a CPU.
_PACKED_DTYPES = ("float32", "bfloat16")


def plan_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe what differs between a folder's plan and a run's; empty: the run may resume."""
    return describe_changes(_with_engine(before), now, _describe_change)


def _with_engine(plan: dict[str, Any]) -> dict[str, Any]:
    """Add the engine that computes the vectors of a plan that names none.

    Plans of a version without engines always name PyTorch, even if its version had no effect.
    """
    model = plan.get("model", {})
    if "engine" in model:
        return plan
    # The packed layers' float32 vectors of MiniLM equal the compiled engine's bit for bit, and
    # differ from PyTorch's modules' by 1e-7.
    if model.get("device") != "cpu" or model.get("dtype") not in _PACKED_DTYPES:
        return {**plan, "model": {**model, "engine": "torch"}}
    versions = {name: value for name, value in plan["versions"].items() if name != "torch"}
    return {**plan, "model": {**model, "engine": "compiled"}, "versions": versions}


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
