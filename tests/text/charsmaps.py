"""Builds SentencePiece's compiled normalization rules, for tests of rules that no model has."""

from __future__ import annotations

import struct

__all__ = ["build_charsmap"]


class _Trie:
    """A darts-clone double array: children of a node lie at its base xor their byte.

    Every node with children has a block of 256 units to itself; those without share blocks.
    """

    def __init__(self) -> None:
        self.units: list[int] = [0] * 256
        self.leaf_blocks: list[int] = []
        self.num_leaves = [0] * 256  # by the low byte of the leaf's node

    def _new_block(self) -> int:
        # Values, which no walk takes for a child.
        self.units += [1 << 31] * 256
        return len(self.units) - 256

    def _leaf_block(self, low: int) -> int:
        index = self.num_leaves[low]
        self.num_leaves[low] += 1
        if index == len(self.leaf_blocks):
            self.leaf_blocks.append(self._new_block())
        return self.leaf_blocks[index]

    def place(self, node: int, keys: list[tuple[bytes, int]]) -> None:
        """Place the children of ``node``, to which the rests of the ``keys`` belong."""
        groups: dict[int, list[tuple[bytes, int]]] = {}
        value: int | None = None
        for key, number in keys:
            if key:
                groups.setdefault(key[0], []).append((key[1:], number))
            else:
                value = number
        low = node & 0xFF
        base = (self._new_block() if groups else self._leaf_block(low)) | low
        self.units[node] |= (node ^ base) >> 8 << 10 | 1 << 9 | (value is not None) << 8
        for label in groups:
            self.units[base ^ label] = label
        if value is not None:
            self.units[base] = 1 << 31 | value
        for label, group in groups.items():
            self.place(base ^ label, group)


def build_charsmap(rules: dict[str, str]) -> bytes:
    """Compile rules: size of the trie, the trie, and the replacements it points to."""
    replacements = bytearray()
    places: dict[str, int] = {}
    for replacement in sorted(set(rules.values())):
        places[replacement] = len(replacements)
        replacements += replacement.encode() + b"\0"
    trie = _Trie()
    trie.place(0, [(key.encode(), places[rules[key]]) for key in sorted(rules)])
    blob = struct.pack(f"<{len(trie.units)}I", *trie.units)
    return struct.pack("<I", len(blob)) + blob + bytes(replacements)
