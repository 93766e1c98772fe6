"""The characters that stand for the 256 bytes in byte-level BPE vocabularies (GPT-2)."""

from __future__ import annotations

__all__ = ["BYTE_LETTERS", "LETTER_BYTES"]

# Printable bytes are themselves, the others U+0100 on, in their order.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

# The letter of each byte, and the byte of each letter.
LETTER_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + place): byte for place, byte in enumerate(_OTHERS)
}
BYTE_LETTERS = tuple(sorted(LETTER_BYTES, key=LETTER_BYTES.__getitem__))
