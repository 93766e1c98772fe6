"""Batches of drawn tokens, words and lengths."""

from __future__ import annotations

import numpy as np

from encoder_engine.packing.clean import CleanBatch

CLS, SEP, MASK, VOCAB = 1, 2, 3, 500


def draw_batch(
    num_sequences: int, longest: int, *, seed: int = 0, first_number: int = 0, epoch: int = 0
) -> CleanBatch:
    """Frame sequences of 1 to ``longest`` tokens, in words of about three, by CLS and SEP."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, longest + 1, num_sequences) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    num_tokens = int(offsets[-1])
    input_ids = generator.integers(10, VOCAB, num_tokens).astype(np.int32)
    special = np.zeros(num_tokens, np.bool_)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    input_ids[offsets[:-1]], input_ids[offsets[1:] - 1] = CLS, SEP
    word_starts = generator.random(num_tokens) < 1 / 3
    word_starts |= special
    word_starts[offsets[:-1] + 1] = True
    return CleanBatch(
        input_ids=input_ids,
        cu_seqlens=offsets,
        numbers=np.arange(num_sequences, dtype=np.int64) + first_number,
        special=special,
        word_starts=word_starts,
        epoch=epoch,
    )


def take_sequences(batch: CleanBatch, order: list[int]) -> CleanBatch:
    """Return some of the sequences, in another order."""
    begins, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:]
    rows = np.concatenate([np.arange(begins[i], ends[i]) for i in order])
    return CleanBatch(
        input_ids=batch.input_ids[rows],
        cu_seqlens=np.concatenate([[0], np.cumsum(batch.lengths[order])]).astype(np.int32),
        numbers=batch.numbers[order],
        special=batch.special[rows],
        word_starts=batch.word_starts[rows],
        epoch=batch.epoch,
    )
