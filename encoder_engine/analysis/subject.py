"""The model to analyse: an encoder with its tokenizer, and batches of sentences of words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import MissingPoolerWarning, UnusedWeightsWarning
from encoder_engine.models import Encoder
from encoder_engine.tasks.models.inputs import packed_batch
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.words.windows import encode_words
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.packing import PackedBatch
    from encoder_engine.tasks.words.windows import Subwords

    Integers = npt.NDArray[np.int64]

__all__ = ["Subject", "WordBatch", "WordStates"]

# Tokens of a batch: enough for full speed on a CPU, and all layers' states still fit in memory.
BATCH_TOKENS = 4096
# The longest sequence of a model without a limit.
LONGEST = 512


class WordBatch(NamedTuple):
    """A batch of sentences, with the words whose tokens are read.

    ``sentences``, ``words`` int64 [n]: the sentence and the word of each of n words.
    ``owners`` int64 [t]: the word, 0 to n - 1, of each token that is read.
    ``tokens`` int64 [t]: the rows of these tokens in the packed batch.
    """

    batch: PackedBatch
    sentences: Integers
    words: Integers
    owners: Integers
    tokens: Integers


class WordStates(NamedTuple):
    """The vectors of n words in every layer, float32 [L + 1, n, D]; layer 0 is the embeddings.

    ``sentences``, ``words`` int64 [n]: the sentence of each word, and the word's index in it.
    """

    sentences: Integers
    words: Integers
    states: npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """The model to analyse: encoder in evaluation mode, tokenizer, and window length."""

    encoder: Encoder
    tokenizer: Tokenizer
    max_length: int = LONGEST

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], device: str = "auto") -> Self:
        """Load a checkpoint in float32 with its tokenizer; exceptions: see :class:`Encoder`."""
        with warnings.catch_warnings():
            # Heads and poolers are not analysed.
            warnings.simplefilter("ignore", MissingPoolerWarning)
            warnings.simplefilter("ignore", UnusedWeightsWarning)
            encoder = Encoder.from_pretrained(path, device=device, dtype="float32")
        encoder.requires_grad_(False)
        longest = min(encoder.spec.max_length or LONGEST, LONGEST)
        return cls(encoder=encoder, tokenizer=Tokenizer.from_pretrained(path), max_length=longest)

    @property
    def num_layers(self) -> int:
        """The number of blocks that a token passes through; a shared block counts each time."""
        order = self.encoder.spec.order
        return len(self.encoder.spec.blocks if order is None else order)

    @property
    def num_heads(self) -> tuple[int, ...]:
        """The number of heads of each layer, which may differ in a pruned model."""
        spec = self.encoder.spec
        order = range(len(spec.blocks)) if spec.order is None else spec.order
        return tuple(spec.blocks[block].attention.num_heads for block in order)

    def word_batches(
        self,
        sentences: Sequence[Sequence[str]],
        subwords: Subwords = "all",
        *,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Iterator[WordBatch]:
        """Yield batches of the sentences, in which every word is read once.

        The model reads the words with a space between them, as in a text. A long sentence is cut
        into windows that overlap. A word without a token is left out.
        """
        windows = Windows(max_length=self.max_length)
        items = encode_words(sentences, self.tokenizer, windows, subwords)
        for numbers in items.batches(batch_tokens):
            part = items.take(numbers)
            places, words = part.ragged("places"), part.ragged("words")
            of_item = np.repeat(np.arange(len(part)), np.diff(places.offsets))
            pairs = np.stack([part.examples[of_item], words.values], 1).reshape(-1, 2)
            named, owners = np.unique(pairs, axis=0, return_inverse=True)
            yield WordBatch(
                packed_batch(part.rows).to(self.encoder.device),
                named[:, 0],
                named[:, 1],
                owners.reshape(-1).astype(np.int64),
                part.token_offsets[of_item] + places.values,
            )

    def word_states(
        self, sentences: Sequence[Sequence[str]], subwords: Subwords = "all"
    ) -> Iterator[WordStates]:
        """Yield the vectors of all words in every layer, batch by batch.

        subwords: ``"all"``: a word's vector is the mean of its subwords'; ``"first"``: that of the
        first.
        """
        for found in self.word_batches(sentences, subwords):
            with torch.no_grad():
                states = self.hidden_states(found.batch)
                vectors = [_means(state, found).cpu().numpy() for state in states]
            yield WordStates(found.sentences, found.words, np.stack(vectors))

    def hidden_states(self, batch: PackedBatch) -> tuple[Tensor, ...]:
        """Return the embeddings of a batch's tokens and each block's output, [T, D] each."""
        output = self.encoder(batch, output_hidden_states=True, output_pooled=False)
        states: tuple[Tensor, ...] | None = output.hidden_states
        assert states is not None
        return states


def _means(state_TD: Tensor, batch: WordBatch) -> Tensor:
    owners = torch.from_numpy(batch.owners).to(state_TD.device)
    tokens = torch.from_numpy(batch.tokens).to(state_TD.device)
    num_words = len(batch.words)
    sums = state_TD.new_zeros(num_words, state_TD.shape[1]).index_add_(0, owners, state_TD[tokens])
    counts = torch.bincount(owners, minlength=num_words).to(state_TD)
    return sums / counts[:, None]
