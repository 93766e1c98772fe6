"""Reads protocol buffers: the fields of one message, with errors that name the field's path.

A message is a sequence of fields, each a key (field number and wire type) and a value, in the
public encoding; no schema is used here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import TokenizerFileError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Message"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT = 10
MAX_FIELD = 2**29 - 1


@dataclass(frozen=True)
class Message:
    """A message's fields: per field number the wire type and the values; ``where``: for errors."""

    where: str
    fields: dict[int, tuple[int, list[int | bytes]]]

    @classmethod
    def read(cls, data: bytes, where: str) -> Message:
        """Parse all fields of a message; a repeated field must keep its wire type."""
        fields: dict[int, tuple[int, list[int | bytes]]] = {}
        at = 0
        while at < len(data):
            key, at = _varint(data, at, where)
            number, kind = key >> 3, key & 7
            if not 1 <= number <= MAX_FIELD:
                raise TokenizerFileError(f"{where}: byte {at}: there is no field {number}")
            value, at = _value(data, at, kind, f"{where}.{number}")
            known, values = fields.setdefault(number, (kind, []))
            if known != kind:
                raise TokenizerFileError(f"{where}.{number}: two wire types, {known} and {kind}")
            values.append(value)
        return cls(where, fields)

    def only_fields(self, known: Collection[int]) -> None:
        """Refuse a message with fields whose numbers are not among ``known``."""
        unknown = sorted(set(self.fields) - set(known))
        if unknown:
            raise TokenizerFileError(
                f"{self.where}: the fields {', '.join(map(str, unknown))} are not supported"
            )

    def _values(self, number: int, kind: int) -> list[int | bytes]:
        found, values = self.fields.get(number, (kind, []))
        if found != kind:
            raise TokenizerFileError(
                f"{self.where}.{number}: expected wire type {kind}, found {found}"
            )
        return values

    def blob(self, number: int) -> bytes:
        """Return the bytes of the field with a number; of several values the last counts."""
        values = self._values(number, BYTES)
        return bytes(values[-1]) if values else b""

    def text(self, number: int, default: str = "") -> str:
        """Return the string of the field with a number, or ``default`` if it is missing."""
        if number not in self.fields:
            return default
        try:
            return self.blob(number).decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerFileError(f"{self.where}.{number}: not UTF-8: {error}") from error

    def integer(self, number: int, default: int = 0) -> int:
        """Return the signed 32-bit integer (a varint) of field ``number``, or ``default``."""
        values = self._values(number, VARINT)
        value = int(values[-1]) if values else default
        signed = value - 2**64 if value >= 2**63 else value
        if not -(2**31) <= signed < 2**31:
            raise TokenizerFileError(f"{self.where}.{number}: {signed} has more than 32 bits")
        return signed

    def flag(self, number: int, default: bool) -> bool:
        """Return the boolean of the field with a number, or ``default`` if it is missing."""
        value = self.integer(number, int(default))
        if value not in (0, 1):
            raise TokenizerFileError(f"{self.where}.{number}: expected 0 or 1, found {value}")
        return bool(value)

    def number(self, number: int) -> float:
        """Return the 32-bit float of the field with a number; 0 if it is missing."""
        values = self._values(number, FIXED32)
        value = bytes(values[-1]) if values else b"\0\0\0\0"
        return float(struct.unpack("<f", value)[0])

    def message(self, number: int) -> Message:
        """Parse the message nested in the field with a number; several values are merged."""
        data = b"".join(bytes(value) for value in self._values(number, BYTES))
        return Message.read(data, f"{self.where}.{number}")

    def blobs(self, number: int) -> list[bytes]:
        """Return all values of the repeated field of bytes with a number."""
        return [bytes(value) for value in self._values(number, BYTES)]


def _varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    value = 0
    for index in range(MAX_VARINT):
        if at + index >= len(data):
            raise TokenizerFileError(f"{where}: the file ends inside a number at byte {at}")
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80 and value < 2**64:
            return value, at + index + 1
    raise TokenizerFileError(f"{where}: byte {at}: a number of more than 64 bits")


def _value(data: bytes, at: int, kind: int, where: str) -> tuple[int | bytes, int]:
    if kind == VARINT:
        return _varint(data, at, where)
    sizes = {FIXED32: 4, FIXED64: 8}
    if kind == BYTES:
        size, at = _varint(data, at, where)
    elif kind in sizes:
        size = sizes[kind]
    else:
        raise TokenizerFileError(f"{where}: byte {at}: there is no wire type {kind}")
    if size > len(data) - at:
        raise TokenizerFileError(f"{where}: {size} bytes at byte {at}, but {len(data) - at} follow")
    return data[at : at + size], at + size
