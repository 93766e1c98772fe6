"""The specification of a BPE tokenizer that the engine encodes itself."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.text.extension import extension
from encoder_engine.text.spec.unigram import LowercaseStep
from encoder_engine.text.vocabulary import NativeMerges, NativeVocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine import _native
    from encoder_engine.text.spec.unigram import MetaspaceSpec, NormalizerStep

__all__ = ["BpeSpec", "BpeSplitting", "ByteLevelDecoderSpec", "WordPattern"]

# Where words begin; csrc/text/bpe/matcher.h has the same order.
WordPattern = Literal[
    "whole", "gpt2", "gpt2_digits", "digits_three", "digits_one", "clip", "marks", "blanks"
]


@dataclass(frozen=True, kw_only=True)
class BpeSplitting:
    """The rules that cut text into words.

    byte_level: merging starts with bytes; otherwise with characters.
    pattern: the rule that finds the starts of words.
    add_prefix_space: a byte-level model puts a space before text that does not begin with one.
    metaspace: a model of characters turns spaces into U+2581, and puts one in front.
    """

    byte_level: bool
    pattern: WordPattern
    add_prefix_space: bool = False
    metaspace: MetaspaceSpec | None = None


@dataclass(frozen=True, kw_only=True)
class BpeSpec:
    """A BPE model and its settings.

    ``merges``: the two parts of each merge, best first; of equal merges the last one's rank counts.
    ``pre_tokenizer``: this member of tokenizer.json as JSON; ``splitting``: the same rules as
    values.
    """

    vocab: Mapping[str, int] = field(repr=False)
    merges: Sequence[tuple[str, str]] = field(repr=False)
    unk_token: str | None
    suffix: str
    ignore_merges: bool
    byte_fallback: bool
    fuse_unk: bool
    normalizer: tuple[NormalizerStep, ...]
    pre_tokenizer: str = field(repr=False)
    splitting: BpeSplitting

    @property
    def num_ids(self) -> int:
        """The number of tokens: the id of the first added token that is not among them."""
        return len(self.vocab)

    @property
    def description(self) -> str:
        """A few words on the tokenizer's model, such as its type, for messages."""
        return f"BPE of {'bytes' if self.splitting.byte_level else 'characters'}"

    def lowercased(self) -> BpeSpec:
        """Return a model that lower-cases texts before it encodes them."""
        if LowercaseStep() in self.normalizer:
            return self
        return replace(self, normalizer=(LowercaseStep(), *self.normalizer))

    @cached_property
    def tokens(self) -> _native.Vocabulary:
        """The vocabulary as an object of the C++ extension, built at its first use."""
        if isinstance(self.vocab, NativeVocabulary):
            return self.vocab.native
        numbers = np.fromiter(self.vocab.values(), np.int32, len(self.vocab))
        built: _native.Vocabulary = extension().Vocabulary(texts=self.vocab, ids=numbers)
        return built

    @cached_property
    def model(self) -> _native.BpeModel:
        """The model as an object of the extension, which may refuse merges: see bpe_json.py."""
        if isinstance(self.merges, NativeMerges):
            merges = self.merges.native
        else:
            parts = (part for merge in self.merges for part in merge)
            merges = extension().Merges(tokens=self.tokens, parts=parts)
        built: _native.BpeModel = extension().BpeModel(
            merges=merges,
            rules=(
                0 if self.splitting.byte_level else 1,
                self.suffix,
                self.ignore_merges,
                self.byte_fallback,
                -1 if self.unk_token is None else self.vocab.get(self.unk_token, -1),
                self.fuse_unk,
            ),
        )
        return built

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the cached objects of the extension."""
        return {k: v for k, v in vars(self).items() if k not in ("tokens", "model")}


@dataclass(frozen=True, kw_only=True)
class ByteLevelDecoderSpec:
    """The decoder of a byte-level BPE vocabulary: the member ``decoder`` as JSON."""

    decoder: str
