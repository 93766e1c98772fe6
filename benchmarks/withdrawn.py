"""Runs whose figures nobody should quote: their lines stay in the results, LOG.md says why."""

from __future__ import annotations

# By Result.run, the reason in words.
WITHDRAWN = {
    "523566f09267": "sentence-transformers loaded its model once for each part of the texts, "
    "and most of its samples were a model's first call (LOG.md, 2026-11-22)",
}
