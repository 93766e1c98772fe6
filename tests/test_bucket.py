"""The layout of a bucket is that of its batch, padded with empty sequences and tiles of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoder_engine.errors import BatchError, ImplementationError
from encoder_engine.ops.testing import LENGTHS
from encoder_engine.packing import Sequences
from encoder_engine.packing.bucket import Bucket, BucketSequences

RANDOM = [
    np.random.default_rng(seed).integers(0, 200, size=1 + 3 * seed).tolist() for seed in range(12)
]


def offsets_of(sequences: Sequences, bucket: Bucket) -> torch.Tensor:
    offsets = np.full(bucket.num_offsets, -1, dtype=np.int32)
    bucket.write_offsets(sequences, offsets)
    return torch.from_numpy(offsets)


@pytest.mark.parametrize("lengths", [*LENGTHS, [64] * 4, *RANDOM])
def test_a_bucket_has_the_batchs_layout_and_then_an_empty_sequence(lengths: list[int]) -> None:
    sequences = Sequences.from_lengths(lengths)
    bucket = Bucket.of(sequences)
    padded = BucketSequences.from_offsets(offsets_of(sequences, bucket), bucket)
    assert len(padded) == bucket.num_sequences + 1 > len(sequences)
    assert (padded.num_tokens, padded.max_seqlen) == (bucket.num_tokens, bucket.max_seqlen)
    assert padded.cu_seqlens.tolist()[: len(sequences) + 1] == sequences.cu_seqlens.tolist()
    for block in (16, 32, 64, 128):
        own, tiles = sequences.tiles(block), padded.tiles(block)
        assert torch.equal(tiles[: len(own)], own)
        assert tiles[len(own) :].tolist() == [[bucket.num_sequences, 0]] * (len(tiles) - len(own))
        assert tiles.dtype == own.dtype
        assert len(tiles) == bucket.num_tiles(block)
    number = sequences.num_tokens
    for name, beyond in (("positions", 0), ("sequence_ids", bucket.num_sequences)):
        found, expected = getattr(padded, name), getattr(sequences, name)
        assert torch.equal(found[:number], expected)
        assert bool((found[number:] == beyond).all())


def test_batches_of_one_bucket_have_no_more_tiles_than_it() -> None:
    bucket = Bucket(num_tokens=64, num_sequences=8, max_seqlen=64)
    for lengths in ([64], [1] * 8, [57, *[1] * 7], [33, 31], [8] * 8):
        assert Bucket.of(Sequences.from_lengths([*lengths, *[0] * (8 - len(lengths))])) == bucket
        for block in (16, 32, 64, 128):
            assert len(Sequences.from_lengths(lengths).tiles(block)) <= bucket.num_tiles(block)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    bucket = Bucket.of(Sequences.from_lengths([64]))
    for lengths in ([65], [1, 1]):
        with pytest.raises(BatchError, match="does not fit into"):
            offsets_of(Sequences.from_lengths(lengths), bucket)


def test_a_bucket_that_could_be_full_promises_no_common_length() -> None:
    bucket = Bucket(num_tokens=128, num_sequences=1, max_seqlen=64)
    padded = BucketSequences.from_offsets(torch.tensor([0, 5, 5], dtype=torch.int32), bucket)
    assert len(padded) * padded.max_seqlen == padded.num_tokens
    assert padded.common_length == 0


@pytest.mark.slow
def test_lengths_are_not_read_back_from_a_device() -> None:
    bucket = Bucket.of(Sequences.from_lengths([3, 5]))
    cu_seqlens = torch.empty(bucket.num_offsets, dtype=torch.int32, device="meta")
    padded = BucketSequences.from_offsets(cu_seqlens, bucket)
    assert padded.tiles(16).shape == (bucket.num_tiles(16), 2)
    assert padded.positions.shape == padded.sequence_ids.shape == (64,)
    with pytest.raises(ImplementationError, match="which a CUDA graph does not have"):
        _ = padded.length_groups
