"""Applies chosen noises to passages: T5's span corruption, or any combination of BART's."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from encoder_engine.data.noising.bart import (
    RowKey,
    delete_tokens,
    infill_text,
    mask_tokens,
    permute_sentences,
    rotate_document,
)
from encoder_engine.data.noising.kinds import NOISE_KINDS
from encoder_engine.data.noising.span_corruption import Noised, SpanCorruption
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.data.noising.kinds import NoiseKind

__all__ = ["Noise"]

Token = TypeVar("Token", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Noise(Generic[Token]):
    """Noises a passage, given as its sentences.

    ``kinds``: ``span-corruption`` alone (T5), or any of the others (BART), which are applied in
    this order: sentences permuted, tokens deleted, masked, infilled, document rotated.
    ``mask``: the token that masking and infilling write.
    ``sentinels``: the tokens that span corruption writes.
    ``share``: the share of tokens that a noise changes; None: 0.15 for span corruption (Raffel et
    al. 2020), 0.3 for the others (Lewis et al. 2020).
    ``mean_length``: the mean length of the spans of span corruption and infilling.

    Raises :class:`ConfigError` for kinds that cannot be combined.
    """

    kinds: Sequence[NoiseKind]
    mask: Token
    sentinels: Sequence[Token] = ()
    share: float | None = None
    mean_length: float = 3.0

    def __post_init__(self) -> None:
        # A list of one kind is not equal to a tuple of it.
        object.__setattr__(self, "kinds", tuple(self.kinds))
        unknown = [kind for kind in self.kinds if kind not in NOISE_KINDS]
        if unknown or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ConfigError(
                f"kinds must be one or more of {', '.join(NOISE_KINDS)}, each once; got "
                f"{list(self.kinds)}"
            )
        if "span-corruption" in self.kinds and len(self.kinds) > 1:
            raise ConfigError(
                "span-corruption has a target of its own and cannot be combined; name it alone, or "
                "use text-infilling with the others"
            )

    def __call__(self, sentences: Sequence[list[Token]], key: RowKey) -> Noised[Token]:
        """Noise a passage; the target is the passage itself, except for span corruption."""
        target = list(chain.from_iterable(sentences))
        if self.kinds == ("span-corruption",):
            share = 0.15 if self.share is None else self.share
            corrupt = SpanCorruption(
                sentinels=self.sentinels, share=share, mean_length=self.mean_length
            )
            return corrupt(target, seed=key.seed, epoch=key.epoch, index=key.row)
        share = 0.3 if self.share is None else self.share
        tokens = target
        if "sentence-permutation" in self.kinds:
            tokens = list(chain.from_iterable(permute_sentences(sentences, key)))
        if "token-deletion" in self.kinds:
            tokens = delete_tokens(tokens, key, share=share)
        if "token-masking" in self.kinds:
            tokens = mask_tokens(tokens, self.mask, key, share=share)
        if "text-infilling" in self.kinds:
            tokens = infill_text(tokens, self.mask, key, share=share, mean_length=self.mean_length)
        if "document-rotation" in self.kinds:
            tokens = rotate_document(tokens, key)
        return Noised(inputs=tokens, targets=target)
