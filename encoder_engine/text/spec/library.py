"""The specification of a tokenizer that Hugging Face tokenizers runs: parts of its JSON."""

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
    """Leaves white space at a token's ends out of its offsets.

    ``add_prefix_space``: the model puts a space before the first token that is not in the text.
    """

    add_prefix_space: bool


@dataclass(frozen=True, kw_only=True)
class LibrarySpec:
    """A model that the library encodes with; ``kind`` is its name in the file.

    ``reason``: why the engine does not encode it itself.
    ``normalizer``, ``pre_tokenizer`` and ``model``: the members as JSON. Template, truncation and
    padding are the engine's own for every model.
    ``num_ids``: the id that the first added token gets which the vocabulary lacks.
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
        """A short description of the model, for messages."""
        return f"{self.kind} by the library tokenizers"

    def lowercased(self) -> LibrarySpec:
        """Give the same model of lower-cased texts."""
        lower, present = {"type": "Lowercase"}, json.loads(self.normalizer)
        if present == lower:
            return self
        steps = [lower] if present is None else [lower, present]
        sequence = {"type": "Sequence", "normalizers": steps}
        return replace(self, normalizer=json.dumps(lower if present is None else sequence))


@dataclass(frozen=True, kw_only=True)
class LibraryDecoderSpec:
    """A decoder that the library runs: the member as JSON."""

    decoder: str
