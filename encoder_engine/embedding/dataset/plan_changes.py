"""Differences between a folder's plan and a run's, by the keywords that set it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.records import describe_changes

if TYPE_CHECKING:
    from encoder_engine.records import Difference

# The keywords of the keys of the plan that are named otherwise.
_KEYWORDS = {
    "normalized": "normalize_embeddings",
    "dimension": "truncate_dim",
    "sparse_pooling": "pooling",
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
        shown = f"its SHA-256 was {digits[0]}..., is {digits[1]}..."
        return f"another {_FINGERPRINTS[found.name]} ({shown})"
    group, _, key = found.name.partition(".")
    if group in ("model", "options") and "." not in key:
        return str(found._replace(name=f"{_KEYWORDS.get(key, key)}="))
    return str(found)
