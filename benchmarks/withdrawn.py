"""Runs whose figures nobody should quote: their lines stay in the results, LOG.md says why."""

from __future__ import annotations

_BEFORE_PEERS = (
    "CTranslate2, OpenVINO, onnxruntime, torch.compile and zentorch took no part in it yet"
)
# By Result.run, the reason in words.
WITHDRAWN = {
    "523566f09267": "sentence-transformers loaded its model once for each part of the texts, "
    "and most of its samples were a model's first call (LOG.md, 2026-11-22)",
    "e3466ff9b646": _BEFORE_PEERS,
    "5279262d3d55": _BEFORE_PEERS,
}
