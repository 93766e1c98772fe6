"""The packed CRF equals an enumeration of all tags, in likelihood, gradients and decoding."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from encoder_engine.errors import InputError, ShapeError
from encoder_engine.models.crf import CRF, LegalTags, viterbi
from encoder_engine.packing import Sequences

TAGS = ["O", "B-A", "I-A", "B-B", "I-B"]
LENGTHS = [[1], [4], [3, 0, 5, 1, 3], [0], []]


def make(
    lengths: list[int], *, legal: bool, dtype: torch.dtype = torch.float64
) -> tuple[CRF, Tensor, Sequences]:
    torch.manual_seed(7)
    crf = CRF(len(TAGS), LegalTags.bio(TAGS) if legal else None).to(dtype)
    with torch.no_grad():
        for weight in crf.parameters():
            weight.normal_()
    emissions = torch.randn(sum(lengths), len(TAGS), dtype=dtype, requires_grad=True)
    return crf, emissions, Sequences.from_lengths(lengths)


def parts(emissions: Tensor, lengths: list[int]) -> list[Tensor]:
    return list(torch.split(emissions, lengths)) if lengths else []


def is_legal(legal: LegalTags, tags: npt.NDArray[np.integer]) -> bool:
    ends = legal.start[tags[:1]].all() and legal.end[tags[-1:]].all()
    return bool(ends and legal.transitions[tags[:-1], tags[1:]].all())


def all_scores(crf: CRF, emissions: Tensor) -> dict[tuple[int, ...], Tensor]:
    """Score every legal tag sequence of one row by the definition of pytorch-crf."""
    legal = LegalTags(
        start=crf.legal_start.numpy(),
        end=crf.legal_end.numpy(),
        transitions=crf.legal_transitions.numpy(),
    )
    found = {}
    for tags in itertools.product(range(len(TAGS)), repeat=len(emissions)):
        if not is_legal(legal, np.array(tags)):
            continue
        score = crf.start[tags[0]] + crf.end[tags[-1]]
        score = score + sum(emissions[place, tag] for place, tag in enumerate(tags))
        for one, next_ in itertools.pairwise(tags):
            score = score + crf.transitions[one, next_]
        found[tags] = score
    return found


def draw_legal(lengths: list[int]) -> Tensor:
    rng = np.random.default_rng(3)
    legal = LegalTags.bio(TAGS)
    rows: list[int] = []
    for length in lengths:
        while True:
            row = rng.integers(len(TAGS), size=length)
            if is_legal(legal, row):
                break
        rows += row.tolist()
    return torch.tensor(rows, dtype=torch.int64)


@pytest.mark.parametrize("legal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_likelihood_and_gradients_are_those_of_an_enumeration(
    lengths: list[int], *, legal: bool
) -> None:
    crf, emissions, sequences = make(lengths, legal=legal)
    tags = draw_legal(lengths)
    found = crf.negative_log_likelihood(emissions, sequences, tags)
    expected = found.new_zeros(())
    for row, part in enumerate(parts(emissions, lengths)):
        if not len(part):
            continue
        scores = all_scores(crf, part)
        start, stop = sequences.offsets[row : row + 2]
        gold = scores[tuple(tags[start:stop].tolist())]
        expected = expected + torch.stack(list(scores.values())).logsumexp(0) - gold
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if not sum(lengths):
        return
    inputs = [emissions, *crf.parameters()]
    ours = torch.autograd.grad(found, inputs)
    truth = torch.autograd.grad(expected, inputs, materialize_grads=True)
    for mine, theirs in zip(ours, truth, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("legal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_decoding_finds_the_best_of_all_sequences(lengths: list[int], *, legal: bool) -> None:
    crf, emissions, sequences = make(lengths, legal=legal, dtype=torch.float32)
    decoded = crf.decode(emissions, sequences)
    assert decoded.dtype == np.int64
    assert len(decoded) == sum(lengths)
    for row, part in enumerate(parts(emissions, lengths)):
        if len(part):
            scores = all_scores(crf, part)
            start, stop = sequences.offsets[row : row + 2]
            assert tuple(decoded[start:stop].tolist()) == max(scores, key=lambda t: scores[t])


def test_no_gradient_is_nan_where_words_are_unreachable() -> None:
    # Tag 2 follows tag 1 alone, and tag 1 cannot begin: at word 1 no way leads to tag 2.
    legal = LegalTags(
        start=np.array([True, False, False]),
        end=np.ones(3, np.bool_),
        transitions=np.array([[True, True, False], [True, True, True], [True, False, True]]),
    )
    crf = CRF(3, legal)
    emissions = torch.randn(3, 3, requires_grad=True)
    tags = torch.tensor([0, 1, 2])
    loss = crf.negative_log_likelihood(emissions, Sequences.from_lengths([3]), tags)
    torch.autograd.backward(loss)
    assert loss.isfinite()
    for weight in (emissions, *crf.parameters()):
        assert weight.grad is not None
        assert weight.grad.isfinite().all()


def test_illegal_gold_tags_have_an_infinite_loss_and_are_found() -> None:
    crf, emissions, sequences = make([2], legal=True)
    tags = torch.tensor([0, TAGS.index("I-A")])
    assert crf.negative_log_likelihood(emissions, sequences, tags) == torch.inf
    found = [
        is_legal(LegalTags.bio(TAGS), np.array(row)) for row in ([0, 2], [2], [1, 2, 2], [1, 4])
    ]
    assert found == [False, False, True, False]


def test_low_precision_is_computed_in_float32() -> None:
    crf, emissions, sequences = make([4, 2], legal=False, dtype=torch.float32)
    tags = draw_legal([4, 2])
    low = crf.negative_log_likelihood(emissions.bfloat16(), sequences, tags)
    assert low.dtype == torch.float32
    rounded = crf.negative_log_likelihood(emissions.bfloat16().float(), sequences, tags)
    torch.testing.assert_close(low, rounded, rtol=0, atol=0)


def test_scores_that_leave_no_way_and_other_shapes_are_refused() -> None:
    crf, emissions, _ = make([3], legal=False)
    with pytest.raises(ShapeError, match=r"emissions are \[3, 5\], 2 words"):
        crf.negative_log_likelihood(emissions, Sequences.from_lengths([2]), torch.zeros(2).long())
    never = np.full((2, 2), -np.inf)
    with pytest.raises(InputError, match="no legal tags"):
        viterbi(np.zeros((2, 2)), np.array([0, 2]), np.zeros(2), np.zeros(2), never)
    with pytest.raises(InputError, match="no legal tags"):
        viterbi(np.full((1, 2), np.nan), np.array([0, 1]), np.zeros(2), np.zeros(2), never)
    with pytest.raises(ShapeError, match=r"legal.start is \[5\], 2 tags need \[2\]"):
        CRF(2, LegalTags.bio(TAGS))
