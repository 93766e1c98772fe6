"""Registers packed batches as pytrees, so that torch.export accepts them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils._pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["register_tree"]

Value = TypeVar("Value")


def register_tree(
    kind: type[Value],
    *,
    names: tuple[str, ...],
    constants: Callable[[Value], Any],
    assemble: Callable[[list[Any], Any], Value],
) -> None:
    """Register a class as a pytree; ``names``: the attributes that are its leaves.

    ``constants``: returns an object's other values; ``assemble``: makes an object of leaves and
    constants without checks. ``torch.export.register_dataclass`` would call the class, which reads
    values that do not exist in a graph.
    """
    read = attrgetter(*names)

    def flatten(value: Value) -> tuple[list[Any], Any]:
        return list(read(value)), constants(value)

    def flatten_with_keys(value: Value) -> tuple[list[tuple[Any, Any]], Any]:
        keys = map(pytree.GetAttrKey, names)
        return list(zip(keys, read(value), strict=True)), constants(value)

    def unflatten(leaves: Iterable[Any], context: Any) -> Value:
        return assemble(list(leaves), context)

    pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"encoder_engine.packing.{kind.__name__}",
        flatten_with_keys_fn=flatten_with_keys,
    )
    # torch.export.save writes the example batch, and torch.export.load refuses unknown classes.
    torch.serialization.add_safe_globals([kind])
