"""Runs whose figures nobody should quote, and what is to be said of older ones.

Their lines stay in the results, LOG.md says why.
"""

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

# Since commit 7d38154 a process that waits for its turn is stopped; before, its threads could spin
# and take a core from whoever was timed. By Result.time_utc.
STOPPED_SINCE = "2026-11-22T04:36"
