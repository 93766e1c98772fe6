"""Writes pylate_golden.json: directories that PyLate saves, and the vectors that it computes.

Run with PyLate and its own sentence-transformers, beside this project:
``PYTHONPATH=. python tests/golden/pylate_golden.py``.
"""

from __future__ import annotations

import base64
import copy
import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tests.opening.test_late_interaction import plain

TARGET = Path(__file__).parent / "pylate_golden.json"
TEXTS = ["the long query", "a row, of (text).", "words words words words"]
CASES: dict[str, dict[str, Any]] = {
    "new tokens": {"query_length": 12, "document_length": 9},
    "unused tokens": {
        "query_prefix": "[unused0]",
        "document_prefix": "[unused1]",
        "query_length": 10,
        "document_length": 14,
        "attend_to_expansion_tokens": True,
        "skiplist_words": ["the", "."],
    },
    "without expansion": {"query_length": 8, "document_length": 14, "do_query_expansion": False},
}
KEPT = (".json", ".safetensors", ".txt")


def make(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Make a model by PyLate, save it, and return its files and its vectors."""
    from pylate import models

    torch.manual_seed(6)
    source = str(plain(folder / "plain"))
    model = models.ColBERT(source, embedding_size=6, device="cpu", **options)
    model.save_pretrained(str(folder / "saved"), create_model_card=False)
    paths = [p for p in sorted((folder / "saved").rglob("*")) if p.suffix in KEPT]
    files = {
        path.relative_to(folder / "saved").as_posix(): base64.b64encode(path.read_bytes()).decode()
        for path in paths
    }
    found: dict[str, Any] = {"files": files}
    for dtype, one in (("float32", model), ("float64", copy.deepcopy(model).double())):
        for kind in ("query", "document"):
            rows = one.encode(TEXTS, is_query=kind == "query", show_progress_bar=False)
            found[f"{kind}_{dtype}"] = [row.tolist() for row in rows]
    return found


def main() -> None:
    """Write the file."""
    cases = {}
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            cases[name] = make(Path(folder), options)
    libraries = ("pylate", "sentence-transformers", "transformers", "torch")
    golden = {"versions": {name: version(name) for name in libraries}, "texts": TEXTS}
    TARGET.write_text(json.dumps(golden | {"cases": cases}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
