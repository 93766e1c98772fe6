"""Writes flag_golden.json: the three outputs that FlagEmbedding computes of a model like BGE-M3.

Run with FlagEmbedding, beside this project: ``PYTHONPATH=. python tests/golden/flag_golden.py``.
"""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tests.embedding.hybrid_model import TEXTS, write_hybrid_directory

TARGET = Path(__file__).parent / "flag_golden.json"
OUTPUTS = {"return_dense": True, "return_sparse": True, "return_colbert_vecs": True}


def make(folder: Path, dtype: torch.dtype) -> dict[str, Any]:
    """Return the outputs of FlagEmbedding's model in a dtype."""
    from FlagEmbedding.inference.embedder.encoder_only.m3 import M3Embedder

    embedder = M3Embedder(str(folder), use_fp16=False, devices="cpu", pooling_method="cls")
    embedder.model.to(dtype)
    found = embedder.encode_single_device(TEXTS, device="cpu", **OUTPUTS)
    return {
        "dense": [row.tolist() for row in found["dense_vecs"]],
        "sparse": [
            {number: float(weight) for number, weight in row.items()}
            for row in found["lexical_weights"]
        ],
        "tokens": [row.tolist() for row in found["colbert_vecs"]],
    }


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        write_hybrid_directory(Path(folder))
        found = {
            str(dtype).removeprefix("torch."): make(Path(folder), dtype)
            for dtype in (torch.float32, torch.float64)
        }
    versions = {name: version(name) for name in ("FlagEmbedding", "transformers", "torch")}
    TARGET.write_text(json.dumps({"versions": versions} | found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
