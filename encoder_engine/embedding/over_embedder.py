"""The base of models that compute other results by an embedder's encoder and tokenizer."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Literal, Self

from encoder_engine.embedding.queries import QueryMethods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.engine.limits import MemoryLimit
    from encoder_engine.engine.protocol import EncoderEngine
    from encoder_engine.text import Tokenizer

__all__ = ["OverEmbedder"]


class OverEmbedder(QueryMethods):
    """A model that computes other results by the encoder and tokenizer of an :class:`Embedder`."""

    embedder: Embedder

    @property
    def engine(self) -> EncoderEngine:
        """The engine that computes the encoder's outputs."""
        return self.embedder.engine

    @property
    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        """The embedder's tokenizer."""
        return self.embedder.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, special tokens included; None: no limit."""
        return self.embedder.max_seq_length

    @property
    def memory_limit(self) -> MemoryLimit:  # type: ignore[override]
        """The most tokens of a batch that fit into the device's memory, as observed so far."""
        return self.embedder.memory_limit

    @property
    def prompts(self) -> Mapping[str, str]:
        """The directory's prompts, by name."""
        return self.embedder.prompts

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that give no prompt."""
        return self.embedder.default_prompt_name

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self.path or self.embedder.name

    def truncating(self, side: Literal["left", "right"]) -> Self:
        """Return a copy that truncates long texts at this side; see :meth:`Model.truncating`."""
        found = copy(self)
        found.embedder = self.embedder.truncating(side)
        return found
