"""Reads ``pruned_heads``: the attention heads that transformers before version 5 pruned.

``pruned_heads`` maps a block's index, as a string, to the indices of its pruned heads. The
checkpoint's weights lack these heads; the configured number of heads is that of a whole block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.errors import ConfigError, UnsupportedFeatureError

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import BlockSpec, EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["PRUNED", "read_pruned", "without_pruned"]

PRUNED = "pruned_heads"


def read_pruned(config: JsonValue) -> dict[int, frozenset[int]]:
    """Return the pruned heads of each block. Raises :class:`ConfigError` for a malformed value."""
    value = config.get(PRUNED)
    if value.is_null:
        return {}
    found = {}
    for name, heads in value.members().items():
        if not name.isdecimal():
            raise ConfigError(f"{PRUNED} names the block {name!r}; blocks are numbers from 0")
        found[int(name)] = frozenset(head.integer(least=0) for head in heads.items())
    return {block: heads for block, heads in found.items() if heads}


def without_pruned(spec: EncoderSpec, config: JsonValue) -> EncoderSpec:
    """Return a spec whose blocks lack the heads that ``pruned_heads`` lists.

    Raises :class:`ConfigError` for blocks or heads that do not exist, and
    :class:`UnsupportedFeatureError` for heads that share keys.
    """
    pruned = read_pruned(config)
    blocks = list(spec.blocks)
    for number, heads in pruned.items():
        if number >= len(blocks):
            raise ConfigError(f"{PRUNED} names block {number}; there are {len(blocks)}, from 0")
        blocks[number] = _smaller(blocks[number], number, heads)
    return replace(spec, blocks=tuple(blocks)) if pruned else spec


def _smaller(block: BlockSpec, number: int, heads: frozenset[int]) -> BlockSpec:
    attention = block.attention
    if attention.key_heads != attention.num_heads:
        raise UnsupportedFeatureError(f"{PRUNED}: the heads of block {number} share keys")
    if max(heads) >= attention.num_heads or len(heads) == attention.num_heads:
        raise ConfigError(
            f"{PRUNED} names the heads {sorted(heads)} of block {number}, which has "
            f"{attention.num_heads} and keeps one at least"
        )
    kept = attention.num_heads - len(heads)
    return replace(block, attention=replace(attention, num_heads=kept, num_key_heads=None))
