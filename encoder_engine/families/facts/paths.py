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
    """Reads config.json keys that need code of their own into a spec, and writes them back."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json keys that this reader reads; they are removed before it writes."""

    def read(self, spec: EncoderSpec, config: JsonValue, /) -> EncoderSpec:
        """Return the spec with the fields set that the keys describe."""

    def write(self, spec: EncoderSpec, /) -> dict[str, Any]:
        """Return the config.json keys with their values for a spec."""


@dataclass(frozen=True)
class OneKey:
    """The base of readers of a single config.json key."""

    key: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The config.json key that this reader reads."""
        return (self.key,)


def with_fact(value: Value, path: str, new: object) -> Value:
    """Return a value with the field at a dotted path replaced, in every block that has it."""
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
    """Return the field at a dotted path, taken from the first block; None if a step is None."""
    for name in path.split("."):
        if isinstance(value, tuple):
            value = value[0] if value else None
        if value is None:
            return None
        value = getattr(value, name)
    return value


def with_attention(block: BlockSpec, **changes: Any) -> BlockSpec:
    """Return a block with fields of its attention replaced."""
    return replace(block, attention=replace(block.attention, **changes))
