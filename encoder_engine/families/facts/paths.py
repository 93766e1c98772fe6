"""Access to a spec's fields by dotted paths, and the interface of config.json key readers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import BlockSpec, EncoderSpec
    from encoder_engine.json_values import JsonValue

__all__ = ["OneKey", "Quirk", "fact", "with_attention", "with_fact"]


Value = TypeVar("Value")


class Quirk(Protocol):
    """Code that reads some config.json keys into a specification, and writes them back."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads; only what :meth:`write` returns is saved."""

    def read(self, spec: EncoderSpec, config: JsonValue, /) -> EncoderSpec:
        """Return ``spec`` with the fields set that these keys of ``config`` determine."""

    def write(self, spec: EncoderSpec, /) -> dict[str, Any]:
        """Return the config.json keys and values that :meth:`read` would read as ``spec``."""


@dataclass(frozen=True)
class OneKey:
    """The base class of readers of a single config.json key; see :class:`Quirk`."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json key that this reader reads."""
        return (self.key,)


def with_fact(value: Value, path: str, new: object) -> Value:
    """Return a copy of a specification with the field at a dotted path replaced by ``new``.

    In a tuple, such as the blocks, the field of every item is replaced.
    """
    if isinstance(value, tuple):
        # Blocks that are one object stay one: a config may ask for a million.
        distinct = {id(item): item for item in value}
        changed = {place: with_fact(item, path, new) for place, item in distinct.items()}
        return type(value)(changed[id(item)] for item in value)
    if not is_dataclass(value):
        return value
    name, _, rest = path.partition(".")
    assert name in {field.name for field in fields(value)}, f"{type(value).__name__} has no {name}"
    inner = with_fact(getattr(value, name), rest, new) if rest else new
    return replace(value, **{name: inner})  # type: ignore[type-var]


def fact(value: object, path: str) -> Any:
    """Return the field of a specification at a dotted path; of blocks, the first block's.

    None if there are no blocks, or a field on the path is None.
    """
    for name in path.split("."):
        if isinstance(value, tuple):
            value = value[0] if value else None
        if value is None:
            return None
        value = getattr(value, name)
    return value


def with_attention(block: BlockSpec, **changes: Any) -> BlockSpec:
    """Return a copy of a block with the given fields of its attention replaced."""
    return replace(block, attention=replace(block.attention, **changes))
