"""Encodes and decodes through the installed version of tokenizers: the other side of a test.

``python -m tests.text.parity.library_versions FOLDER`` reads ``files.json`` and writes
``found.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from encoder_engine.errors import InputError
from encoder_engine.text import Tokenizer


def describe(path: str, texts: list[str]) -> dict[str, Any]:
    """Return what a tokenizer makes of texts: ids, ids of pairs cut short, and texts again."""
    tokenizer = Tokenizer.from_pretrained(path)
    found = tokenizer.encode_batch(texts)
    pairs = tokenizer.encode_batch(texts, texts[::-1], max_length=9)
    rows = found.tolist()
    return {
        "ids": rows,
        "alone": tokenizer.encode_batch(texts, num_threads=1).tolist(),
        "one": [tokenizer.encode(text).tolist() for text in texts],
        "pairs": pairs.tolist(),
        "texts": [tokenizer.decode(row) for row in rows],
        "added": [token.content for token in tokenizer.spec.added_tokens],
    }


def has_offsets(path: str) -> bool:
    """Return whether the version gives offsets; one that does not is refused by name."""
    message = ""
    try:
        Tokenizer.from_pretrained(path).encode_batch(["a"], return_offsets=True)
    except InputError as error:
        message = str(error)
    return "tokenizers below 1.0" not in message


def main(folder: Path) -> None:
    """Describe every file of a folder."""
    given = json.loads((folder / "files.json").read_text("utf-8"))
    found = {path: describe(path, given["texts"]) for path in given["paths"]}
    offsets = [has_offsets(path) for path in given["paths"]]
    (folder / "found.json").write_text(json.dumps({"found": found, "offsets": offsets}), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
