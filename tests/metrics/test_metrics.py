"""Every score equals that of the field's own library, on drawn cases and at the edges."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from encoder_engine.errors import InputError
from encoder_engine.metrics.answers import answer_f1, answer_scores, exact_match, normalize_answer
from encoder_engine.metrics.calibration import calibration, fit_temperature
from encoder_engine.metrics.classification import (
    accuracy,
    class_scores,
    confusion_matrix,
    macro_f1,
    matthews,
)
from encoder_engine.metrics.correlation import pearson, rank_agreement, spearman
from encoder_engine.metrics.intervals import bootstrap, paired_randomisation, seed_interval
from encoder_engine.metrics.ranking import rank_by_score, ranking_scores

Array = npt.NDArray[np.float64]
RNG = np.random.default_rng(11)
# Shares of up to 40 rows, by other sums in float64.
EXACT = 40 * float(np.finfo(np.float64).eps)


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_classes_score_as_in_scikit_learn(num_classes: int) -> None:
    for _ in range(50):
        gold, predicted = RNG.integers(num_classes, size=(2, int(RNG.integers(1, 40))))
        confusion = confusion_matrix(gold, predicted, num_classes=num_classes)
        labels = range(num_classes)
        assert (confusion == sklearn_metrics.confusion_matrix(gold, predicted, labels=labels)).all()
        assert accuracy(gold, predicted) == pytest.approx((gold == predicted).mean(), abs=EXACT)
        expected = sklearn_metrics.precision_recall_fscore_support(
            gold, predicted, labels=labels, zero_division=0
        )
        np.testing.assert_allclose(class_scores(confusion), np.array(expected).T, atol=EXACT)
        assert macro_f1(confusion) == pytest.approx(
            sklearn_metrics.f1_score(gold, predicted, average="macro", zero_division=0), abs=EXACT
        )
        if len({*gold.tolist(), *predicted.tolist()}) > 1:
            assert matthews(confusion) == pytest.approx(
                sklearn_metrics.matthews_corrcoef(gold, predicted), abs=EXACT
            )


def test_a_constant_prediction_has_no_matthews_correlation() -> None:
    assert matthews(confusion_matrix([0, 1, 1], [1, 1, 1], num_classes=2)) == 0.0


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([0, 1], [0], "2 gold rows and 1 predictions"),
        ([], [], "integer class"),
        ([0, 2], [0, 1], "class 2 in row 1"),
        ([0.5], [0], "integer class"),
    ],
)
def test_bad_classes_are_refused(gold: list[int], predicted: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        confusion_matrix(gold, predicted, num_classes=2)


def test_correlations_are_scipys() -> None:
    for _ in range(50):
        one, other = RNG.integers(5, size=(2, 20)) * 10.0 ** RNG.integers(-3, 200)
        expected = stats.pearsonr(one / one.max(), other / other.max()).statistic
        assert pearson(one, other) == pytest.approx(expected)
        assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert math.isnan(spearman([1.0, 1.0], [1.0, 2.0]))
    with pytest.raises(InputError, match="nan in row 1"):
        pearson([0.0, 1.0], [0.0, math.nan])


def test_scores_that_are_no_numbers_are_refused() -> None:
    cases: list[Any] = [["a", "b"], [[1.0], [1.0, 2.0]], [object(), 1.0]]
    for wrong in cases:
        with pytest.raises(InputError, match="predicted must be one number per row"):
            pearson([1.0, 2.0], wrong)


def test_agreement_of_ranks_does_not_depend_on_the_order_of_rows() -> None:
    gold, predicted = RNG.integers(3, size=30).astype(float), RNG.normal(size=30)
    found, order = rank_agreement(gold, predicted), RNG.permutation(30)
    np.testing.assert_array_equal(rank_agreement(gold[order], predicted[order]), found[order])
    gaps = (stats.rankdata(gold) - stats.rankdata(predicted)) / 30
    np.testing.assert_allclose(found, -(gaps**2), rtol=0, atol=EXACT)


def test_answers_are_compared_as_squad_does() -> None:
    assert normalize_answer("The  U.S.'s an  apple, a-b") == "uss apple ab"
    assert exact_match("", []) == 1.0
    assert exact_match("", ["x"]) == 0.0
    assert exact_match("the", ["An"]) == 1.0
    # One text was read as a list of its characters, none of which is the answer.
    for measure in (exact_match, answer_f1):
        with pytest.raises(InputError, match="answers is one text, 'Paris'"):
            measure("Paris", "Paris")
    scores = answer_scores(
        {"a": "the red house", "b": "", "c": "two two"},
        {"a": ["A house", "red barn door"], "b": [], "c": ["two"]},
    )
    # a: one of two words, one of one; c: one of two, one of one.
    assert scores.f1 == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)
    assert scores.exact_match == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="1 of 2 questions have no prediction, the first is 'b'"):
        answer_scores({"a": ""}, {"a": [], "b": []})


def test_rankings_score_as_in_scikit_learn() -> None:
    rankings = []
    precisions, gains = [], []
    for _ in range(40):
        relevance = RNG.integers(3, size=15).astype(float)
        given = RNG.permutation(15).astype(float)
        rankings.append(rank_by_score(relevance, given))
        precisions.append(sklearn_metrics.average_precision_score(relevance > 0, given))
        gains.append(sklearn_metrics.ndcg_score([relevance], [given], k=10))
    found = ranking_scores([*rankings, [0.0, 0.0]])
    assert found.mean_average_precision == pytest.approx(np.mean(precisions))
    assert found.ndcg == pytest.approx(np.mean(gains))
    assert (found.num_queries, found.num_left_out) == (40, 1)
    assert ranking_scores([[0, 1], [1, 0]]).mean_reciprocal_rank == 0.75
    with pytest.raises(InputError, match="no query has a relevant document"):
        ranking_scores([[0.0]])


def test_ties_earn_nothing_in_any_order() -> None:
    assert rank_by_score([1.0, 0.0, 2.0, 0.0], [3.0] * 4).tolist() == [0.0, 0.0, 1.0, 2.0]
    for relevance, given in (([1, 0, 1, 0], [1, 1, 0, 0]), ([0, 1, 0, 1], [1, 1, 0, 0])):
        assert rank_by_score(relevance, given).tolist() == [0.0, 1.0, 0.0, 1.0]
    constant = ranking_scores([rank_by_score([1, 0, 0, 0], np.zeros(4))])
    assert constant.mean_reciprocal_rank == constant.mean_average_precision == 0.25


def test_the_temperature_undoes_a_scale() -> None:
    logits = RNG.normal(size=(4000, 3)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    gold = np.array([RNG.choice(3, p=row) for row in shares])
    best = fit_temperature(logits, gold)
    # A minimum is known to the root of the precision of the loss.
    close = 4 * math.sqrt(np.finfo(np.float64).eps)
    assert fit_temperature(5 * logits, gold) == pytest.approx(5 * best, rel=close)
    # The labels were drawn from these probabilities, so their error is that of counting.
    found = calibration(logits / best, gold)
    assert found.ece < 4 * math.sqrt(15 / len(gold))
    assert found.nll == pytest.approx(sklearn_metrics.log_loss(gold, _softmax(logits / best)))
    assert calibration(5 * logits, gold).ece > found.ece


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Array = shares / shares.sum(1, keepdims=True)
    return probabilities


def test_expected_calibration_error_by_hand() -> None:
    logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    found = calibration(logits, [0, 1, 1])
    # Two rows at 0.9 of which one is right, one row at 0.6 that is wrong.
    assert found.ece == pytest.approx((2 * 0.4 + 0.6) / 3)
    assert found.brier == pytest.approx((0.02 + 1.62 + 0.72) / 3)


def test_an_interval_over_seeds_is_students() -> None:
    scores = [0.8, 0.82, 0.79, 0.85]
    found = seed_interval(scores)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(scores), scale=stats.sem(scores))
    assert [found.low, found.high] == pytest.approx([low, high])
    with pytest.raises(InputError, match="at least two"):
        seed_interval([0.5])


def mean_of(values: Array, rows: npt.NDArray[np.int64]) -> float:
    return float(values[rows].mean())


def test_a_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(100):
        values = np.random.default_rng(seed).normal(size=60)
        found = bootstrap(partial(mean_of, values), 60, samples=200, seed=seed)
        covered += found.low <= 0.0 <= found.high
    # 95 of 100 by its definition; outside this range with a chance of 1 in 1,000.
    assert covered >= stats.binom.ppf(0.001, 100, 0.92)


def test_groups_are_drawn_as_one() -> None:
    groups = np.repeat(np.arange(5), 4)
    drawn: list[npt.NDArray[np.int64]] = []

    def keep(rows: npt.NDArray[np.int64]) -> float:
        drawn.append(rows)
        return 0.0

    bootstrap(keep, 20, groups=groups, samples=9)
    for rows in drawn:
        counts = np.bincount(rows, minlength=20).reshape(5, 4)
        assert (counts == counts[:, :1]).all()


def test_samples_without_a_score_are_left_out() -> None:
    values = np.array([1.0, 2.0, math.nan])
    found = bootstrap(partial(mean_of, values), 3, samples=50)
    assert 1.0 <= found.low <= found.high <= 2.0
    assert math.isnan(found.mean)
    never = bootstrap(partial(mean_of, values[2:]), 1, samples=50)
    assert all(map(math.isnan, never))


def test_randomisation_tells_equal_systems_from_different_ones() -> None:
    one = RNG.normal(size=200)
    assert paired_randomisation(one, one, samples=200) == 1.0
    assert paired_randomisation(one, one + 1.0, samples=200) == 1 / 201
    other = one + 0.05 + RNG.normal(size=200)
    expected = stats.permutation_test(
        (one, other),
        lambda a, b: np.mean(a - b),
        permutation_type="samples",
        n_resamples=5000,
        rng=1,
    ).pvalue
    # Both are shares of drawn swappings: within 4 standard deviations of each other.
    spread = 4 * math.sqrt(2 * expected * (1 - expected) / 5000)
    assert abs(paired_randomisation(one, other, samples=5000) - expected) <= spread + 1e-3


def test_equal_systems_differ_by_chance_no_more_often_where_rows_have_groups() -> None:
    level, trials = 0.05, 400
    rng = np.random.default_rng(0)
    rejected = 0
    for seed in range(trials):
        groups = np.repeat(np.arange(30), rng.integers(1, 9, size=30))
        # The rows of a group have one score, as the rows of a query do.
        one, other = rng.normal(size=(2, 30))[:, groups]
        p_value = paired_randomisation(one, other, groups=groups, samples=199, seed=seed)
        rejected += p_value <= level
    # A true null is rejected with a probability of at most the level: 4 standard deviations above.
    assert rejected / trials <= level + 4 * math.sqrt(level * (1 - level) / trials)
    with pytest.raises(InputError, match="3 rows and 2 groups"):
        paired_randomisation([1, 2, 3], [1, 2, 4], groups=[0, 1])
