"""A static model: a table, its tokenizer, and the rules of model2vec or sentence-transformers."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import Pooled

if TYPE_CHECKING:
    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.inference.static_table import StaticTable
    from encoder_engine.packing.token_rows import TokenRows
    from encoder_engine.text import Tokenizer

__all__ = [
    "DEFAULT_MAX_LENGTH",
    "RULES",
    "Coverage",
    "Rules",
    "StaticEngine",
    "StaticModel",
    "StaticSettings",
]

Rules = Literal["model2vec", "sentence-transformers"]
RULES: tuple[Rules, ...] = get_args(Rules)
# Tokens of a text that model2vec keeps unless config.json says otherwise.
DEFAULT_MAX_LENGTH = 512


@dataclass(frozen=True, kw_only=True)
class StaticSettings:
    """The settings of a static model.

    rules: the library by whose rules unknown tokens and long texts are treated.
    normalized: whether vectors are scaled to Euclidean length 1.
    max_length: the most tokens of a text; None: no limit.
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
    """A table, a tokenizer whose ids index the table's rows, and the settings.

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
    """Return the median number of characters per token, by which model2vec truncates long texts."""
    lengths = {token: len(token) for token in tokenizer.spec.model.vocab}
    lengths |= {token.content: len(token.content) for token in tokenizer.spec.added_tokens}
    return int(np.median(list(lengths.values())))


@dataclass(frozen=True, kw_only=True)
class StaticEngine:
    """The :class:`Engine` of a static table: averages the rows of a text's tokens."""

    model: StaticModel
    num_threads: int
    name: str = "static"
    device: str = "cpu"
    quantization: str | None = None

    @property
    def dtype(self) -> str:
        """The name of the table's dtype."""
        return self.model.table.dtype

    @property
    def batch_tokens(self) -> int:
        """The default for the most tokens of a batch, 2**20; a core adds so many rows in 20 ms."""
        return 2**20

    def run(self, rows: TokenRows, *outputs: Output) -> tuple[Vectors, ...]:
        """Compute the mean of the table's rows of each text; see :meth:`Engine.run`.

        ``outputs``: one :class:`Pooled`, since a table has no other output. Raises ``TypeError``
        for others.
        """
        (output,) = outputs
        if not isinstance(output, Pooled):
            raise TypeError(f"a table has no output {type(output).__name__}")
        vectors = self.model.table.mean(
            rows.ids,
            rows.cu_seqlens,
            dimension=output.dimension,
            normalized=output.normalized,
            num_threads=self.num_threads,
        )
        return (vectors,)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the table."""
        return self.model.table.fingerprint()

    def versions(self) -> dict[str, str]:
        """Return {}: the results depend on no library's version but NumPy's and this package's."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The counts of known and unknown tokens of texts; see :meth:`StaticEmbedder.coverage`.

    num_tokens: tokens of all texts, unknown ones included.
    num_unknown: unknown tokens.
    num_empty: texts without a token that is known.
    """

    num_tokens: int
    num_unknown: int
    num_empty: int
