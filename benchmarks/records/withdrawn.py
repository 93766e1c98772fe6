"""Withdrawn runs, whose figures are not quoted, and notes on older ones.

Their lines stay in the results, LOG.md says why.
"""

from __future__ import annotations

_BEFORE_PEERS = (
    "CTranslate2, OpenVINO, onnxruntime, torch.compile and zentorch took no part in it yet"
)
_COMPILED = (
    "it times loading a compiled form of the vocabulary, which is gone, and the reader of "
    "tokenizer.json before the native one (LOG.md, 2026-11-23)"
)
# By Result.run, the reason in words.
WITHDRAWN = {
    "523566f09267": "sentence-transformers loaded its model once for each part of the texts, "
    "and most of its samples were a model's first call (LOG.md, 2026-11-22)",
    "e3466ff9b646": _BEFORE_PEERS,
    "5279262d3d55": _BEFORE_PEERS,
    "8efd8e9b6e3e": _COMPILED,
    "43b305b1c8f4": _COMPILED,
    "754283e4eb91": _COMPILED,
    "4ced8a2ee92f": _COMPILED,
    "d06c994c7c47": _COMPILED,
    "43805b764898": _COMPILED,
    "8e3bb8180bcc": _COMPILED,
    "c26a4539f20b": _COMPILED,
    "94aa00dcc4c4": _COMPILED,
    "8c253b6b685f": _COMPILED,
    "90115e657b5b": _COMPILED,
    "bb232d3d9a51": "OpenVINO within sentence-transformers computed in bfloat16 (LOG.md, "
    "2026-11-27)",
    "4156b9ea9cd8": _COMPILED,
}

# Since commit 7d38154 a process that waits for its turn is stopped; before, its threads could spin
# and take a core from whoever was timed. By Result.time_utc.
STOPPED_SINCE = "2026-11-22T04:36"
