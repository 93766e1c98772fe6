"""A static model: a table of embeddings, its tokenizer, and the rules of the library it is for."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from encoder_engine.inference.static_table import StaticTable
    from encoder_engine.text import Tokenizer

__all__ = ["DEFAULT_MAX_LENGTH", "RULES", "Rules", "StaticModel", "StaticSettings"]

Rules = Literal["model2vec", "sentence-transformers"]
RULES: tuple[Rules, ...] = get_args(Rules)
# Tokens of a text that model2vec keeps unless config.json says otherwise.
DEFAULT_MAX_LENGTH = 512


@dataclass(frozen=True, kw_only=True)
class StaticSettings:
    """The settings of a static model.

    rules: whose treatment of unknown tokens and of long texts applies.
    normalized: vectors have Euclidean length 1.
    max_length: tokens kept of a text; None: all.
    prompts, default_prompt_name, truncate_dim, similarity: see :class:`PoolingRecipe`.
    base_model: the model that the table was distilled from, if stated.
    """

    rules: Rules = "model2vec"
    normalized: bool = False
    max_length: int | None = DEFAULT_MAX_LENGTH
    prompts: dict[str, str] = field(default_factory=lambda: {"query": "", "document": ""})
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str | None = None
    base_model: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StaticModel:
    """A table, the tokenizer whose ids it has rows for, and the settings.

    Texts with tokens that have no row are refused.
    """

    table: StaticTable
    tokenizer: Tokenizer
    settings: StaticSettings

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", self.tokenizer.fitted_to(self.table.num_ids))


def unknown_id(tokenizer: Tokenizer) -> int:
    """Return the id of the model's unknown token, which model2vec leaves out; -1: it has none."""
    unknown = tokenizer.spec.model.unk_token
    number = None if unknown is None else tokenizer.token_to_id(unknown)
    return -1 if number is None else number


def median_token_length(tokenizer: Tokenizer) -> int:
    """Return the median number of characters of a token, by which model2vec cuts long texts."""
    lengths = {token: len(token) for token in tokenizer.spec.model.vocab}
    lengths |= {token.content: len(token.content) for token in tokenizer.spec.added_tokens}
    return int(np.median(list(lengths.values())))
