"""What a family puts on top of its encoder for a task, and what its checkpoints call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.spec import Activation

__all__ = ["DenseLayout", "HeadLayout", "Rows", "Task"]

Task = Literal[
    "masked-lm",
    "next-sentence",
    "question-answering",
    "replaced-tokens",
    "sequence-classification",
    "token-classification",
]
# Of which rows a head computes: every token's, one of each sequence, or what the pooler made of it.
Rows = Literal["all", "first", "mean", "pooled"]


@dataclass(frozen=True, kw_only=True)
class DenseLayout:
    """A dense layer ahead of the last one, activated and perhaps normalised as the blocks are.

    ``activation`` None: the feed-forward layers'. ``dropout_before``: what it takes is dropped out
    as well. ``to_embedding_width``: it narrows rows to the width of the token embeddings.
    """

    activation: Activation | Literal["tanh"] | None = None
    bias: bool = True
    norm: bool = False
    dropout_before: bool = False
    to_embedding_width: bool = False


@dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """One head of a family: of which rows, through which layers, to how many numbers.

    ``architecture`` is transformers' class. ``num_outputs`` None: as many as there are labels; of a
    masked-language model, the vocabulary, by the token embeddings. ``dropouts``: the keys of
    config.json that name the rate, the first that does counts. ``rows_key``: a key that names the
    rows instead, ``rows_names`` by what. ``sees_all``: which rows see beyond a window unless the
    caller says so: the first, or those up to the first separator.

    ``renames`` are of ``dense``, ``norm`` and ``output``, by a checkpoint's whole names. ``copies``
    are names under which it may hold another tensor again. ``required`` is as in a family.
    """

    task: Task
    architecture: str
    renames: tuple[Rename, ...]
    rows: Rows = "all"
    rows_key: str | None = None
    rows_names: Mapping[str, Rows] = field(default_factory=dict)
    dense: DenseLayout | None = None
    num_outputs: int | None = None
    dropouts: tuple[str, ...] = ()
    dropout: float = 0.1
    sees_all: Literal["first", "question"] | None = None
    copies: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
