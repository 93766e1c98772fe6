"""The heads of a family as data: their layers, inputs and tensor names."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.families.facts.names import Rename
    from encoder_engine.families.facts.spec import Activation

__all__ = ["ONE_ROW", "DenseLayout", "HeadLayout", "Rows", "Task"]

Task = Literal[
    "masked-lm",
    "multiple-choice",
    "next-sentence",
    "question-answering",
    "replaced-tokens",
    "sequence-classification",
    "token-classification",
]
# What a head reads: all tokens; one vector of each sequence, its first or last row or the mean; the
# pooler's output; or all tokens, of whose logits each sequence has the mean ("late").
Rows = Literal["all", "first", "last", "mean", "pooled", "late"]
# How the vector of each sequence is made.
ONE_ROW: dict[Rows, Literal["cls", "lasttoken", "mean"]] = {
    "first": "cls",
    "last": "lasttoken",
    "mean": "mean",
    "pooled": "cls",
}


@dataclass(frozen=True, kw_only=True)
class DenseLayout:
    """A dense layer before a head's output layer.

    ``activation``: applied to its output; None: the activation of the feed-forward layers.
    ``norm``: a norm of the blocks' kind follows.
    ``dropout_before``: its input has dropout as well.
    ``to_embedding_width``: its output is as wide as the token embeddings.
    """

    activation: Activation | Literal["tanh"] | None = None
    bias: bool = True
    norm: bool = False
    dropout_before: bool = False
    to_embedding_width: bool = False


@dataclass(frozen=True, kw_only=True)
class HeadLayout:
    """One head of a family.

    ``architecture``: the name of transformers' class.
    ``renames``: the full names in a checkpoint of the layers ``dense``, ``norm`` and ``output``.
    ``rows``: the hidden states that the head reads, such as each text's first; ``rows_keys``: keys
    of config.json that choose others, the first present counts; ``rows_names`` maps their values.
    ``output_bias``: the output layer has a bias.
    ``num_outputs``: None: the number of labels, or, of a masked-language model, the vocabulary.
    ``dropouts``: the keys of config.json with the head's dropout; the first present counts.
    ``sees_all``: the tokens with global attention by default, in a model with a window: the first
    token, or the question, which is the tokens up to the first separator.
    ``copies``: names under which a checkpoint may repeat another tensor.
    ``required``: see :class:`Family`.
    """

    task: Task
    architecture: str
    renames: tuple[Rename, ...]
    rows: Rows = "all"
    rows_keys: tuple[str, ...] = ()
    rows_names: Mapping[str, Rows] = field(default_factory=dict)
    dense: DenseLayout | None = None
    output_bias: bool = True
    num_outputs: int | None = None
    dropouts: tuple[str, ...] = ()
    dropout: float = 0.1
    sees_all: Literal["first", "question"] | None = None
    copies: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
