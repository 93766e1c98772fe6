"""The specification of a tokenizer that Hugging Face tokenizers runs: members of its JSON."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LibraryDecoderSpec", "LibrarySpec", "OffsetTrim"]


@dataclass(frozen=True, kw_only=True)
class OffsetTrim:
    """Leaves the white space at a token's ends out of its character offsets.

    ``add_prefix_space``: the model puts a space, which is not in the text, before the first token.
    """

    add_prefix_space: bool


@dataclass(frozen=True, kw_only=True)
class LibrarySpec:
    """A model that Hugging Face tokenizers encodes with; ``kind``: the model's type in the file.

    ``reason``: why the engine does not encode it itself.
    ``normalizer``, ``pre_tokenizer`` and ``model``: these members of tokenizer.json, as JSON.
    Template, truncation and padding are the engine's own for every model.
    ``num_ids``: the id of the first added token that is not in the vocabulary.
    """

    kind: str
    normalizer: str
    pre_tokenizer: str = field(repr=False)
    model: str = field(repr=False)
    vocab: Mapping[str, int] = field(repr=False)
    unk_token: str | None
    num_ids: int
    reason: str = field(repr=False, compare=False)

    @property
    def description(self) -> str:
        """A few words on the tokenizer's model, such as its type, for messages."""
        return f"{self.kind} by the library tokenizers"

    def lowercased(self) -> LibrarySpec:
        """Return a model that lower-cases texts before it encodes them."""
        lower, present = {"type": "Lowercase"}, json.loads(self.normalizer)
        if present == lower:
            return self
        steps = [lower] if present is None else [lower, present]
        sequence = {"type": "Sequence", "normalizers": steps}
        return replace(self, normalizer=json.dumps(lower if present is None else sequence))


@dataclass(frozen=True, kw_only=True)
class LibraryDecoderSpec:
    """A decoder that Hugging Face tokenizers runs: the member ``decoder`` as JSON."""

    decoder: str
