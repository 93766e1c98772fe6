"""Reads the texts and vocabularies of ``benchmarks/texts/data``, which every checkout has.

The README.md of that folder names their origins and licences.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

__all__ = ["DATA", "read_bytes", "read_text"]

DATA = Path(__file__).parent / "data"


def read_bytes(name: str) -> bytes:
    """Read a file of the folder, decompressed; ``name`` lacks the ending ``.xz``."""
    packed = DATA / f"{name}.xz"
    return lzma.decompress(packed.read_bytes()) if packed.is_file() else (DATA / name).read_bytes()


@cache
def read_text(name: str) -> str:
    """Read a file of the folder as text; ``name`` lacks the ending ``.xz``."""
    return read_bytes(name).decode()
