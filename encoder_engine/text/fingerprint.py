"""The fingerprint of a tokenizer: equal fingerprints mean equal tokens for all texts."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.files import file_sha256

if TYPE_CHECKING:
    from encoder_engine.text.tokenizer import Tokenizer

__all__ = ["tokenizer_fingerprint"]


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Return a digest (SHA-256) of the files that :meth:`Tokenizer.save` writes."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        for path in sorted(Path(folder).iterdir()):
            digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return digest.hexdigest()
