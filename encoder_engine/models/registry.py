"""The families of encoders: what each is as data, and how one is found by its model_type."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import UnknownModelTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.models.names import Rename

__all__ = ["ConfigKeys", "Family", "all_families", "find_family"]


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """What a family's config.json calls each fact; None: it has no such key."""

    width: str = "hidden_size"
    num_blocks: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    feed_forward_width: str = "intermediate_size"
    num_positions: str = "max_position_embeddings"
    activation: str = "hidden_act"
    dropout: str = "hidden_dropout_prob"
    attention_dropout: str = "attention_probs_dropout_prob"
    norm_epsilon: str | None = "layer_norm_eps"
    num_segments: str | None = "type_vocab_size"
    embedding_width: str | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of encoders, whose members differ only in sizes.

    ``architecture`` is the class transformers loads a saved encoder as. ``prefix`` is what a
    checkpoint with a head puts before the encoder's tensor names, and ``heads`` are the beginnings
    of the head's own. ``required`` are configuration values without which the computation would be
    another; ``ignored`` are keys that say nothing about it.
    """

    model_type: str
    architecture: str
    prefix: str
    renames: tuple[Rename, ...]
    padding_id: int
    pooler: bool
    keys: ConfigKeys = field(default_factory=ConfigKeys)
    positions_follow_padding_id: bool = False
    heads: tuple[str, ...] = ()
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def block_prefix(self) -> str:
        """What a checkpoint calls a block, with ``{block}`` for its index."""
        theirs = next(r.theirs for r in self.renames if "{block}" in r.ours)
        first = theirs if isinstance(theirs, str) else theirs[0]
        return first[: first.index("{block}") + len("{block}")]


@cache
def all_families() -> dict[str, Family]:
    """Every family by its ``model_type``: one per file in ``models/families``."""
    from encoder_engine.models import families as package

    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        family: Family = importlib.import_module(f"{package.__name__}.{module.name}").FAMILY
        found[family.model_type] = family
    return dict(sorted(found.items()))


def find_family(model_type: object) -> Family:
    """Look a family up; :class:`UnknownModelTypeError` lists the known ones."""
    known = all_families()
    if not isinstance(model_type, str) or model_type not in known:
        raise UnknownModelTypeError(
            f"model_type {model_type!r} is not supported; supported are {', '.join(known)}"
        )
    return known[model_type]
