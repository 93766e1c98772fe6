"""The loader's gate checks every token, a plausible number of masked ones, and the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.cases.loader import EpochCounts, LoaderGate, draw_samples
from benchmarks.jobs.training_step import LossesGate

COUNTS = [0, 4000, 3000, 3000]
GATE = LoaderGate(vocab_size=4, counts=COUNTS, most_hidden=10_000, loss=LossesGate(truth=[2.0]))
# 0.15 of ten thousand, and of those 0.8 and three of four of 0.1.
RIGHT = EpochCounts(counts=torch.tensor(COUNTS), hidden=1500, changed=1312, loss=2.0)


def test_what_is_expected_passes() -> None:
    verdict = GATE(RIGHT)
    assert verdict.passed
    assert verdict.reason is None
    assert verdict.figures["hidden_share"] == 0.15
    assert GATE(replace(RIGHT, loss=None)).passed


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        # The sum of the ids, and their number, are right.
        (replace(RIGHT, counts=torch.tensor([0, 4001, 2998, 3001])), "other tokens"),
        (replace(RIGHT, counts=torch.tensor(COUNTS[:3])), "other tokens"),
        (replace(RIGHT, hidden=0, changed=0), "0 of 10000 tokens are hidden"),
        (replace(RIGHT, hidden=1800, changed=1575), "1800 of 10000 tokens are hidden"),
        (replace(RIGHT, changed=0), "0 of 1500 hidden tokens look otherwise"),
        (replace(RIGHT, changed=1500), "1500 of 1500 hidden tokens look otherwise"),
        (replace(RIGHT, loss=2.1), "the losses are [2.1]"),
    ],
)
def test_what_is_wrong_is_refused_and_said(found: EpochCounts, reason: str) -> None:
    verdict = GATE(found)
    assert not verdict.passed
    assert verdict.reason is not None
    assert reason in verdict.reason


def test_the_drawn_corpus_fills_its_blocks_and_has_borders_in_them() -> None:
    samples = draw_samples(64, 32, 100)
    assert samples.lengths.tolist() == [32] * 64
    batch = samples.batch(np.arange(64))
    assert len(batch.input_ids) == 64 * 32
    assert samples.corpus.num_tokens == 64 * 30
    assert samples.corpus.num_sentences > samples.corpus.num_documents > 1
