"""Segmentations other than the best: against enumeration, the library, and the seed's promise."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.errors import InputError, TextError
from encoder_engine.text import Tokenizer, UnigramSampling
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec
from tests.text.sentencepiece_models import train
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.text.parity.peers import Peer

DRAWS = 20_000
MARK = "▁"


@pytest.fixture(scope="module")
def tokenizer(unigram_peers: list[Peer]) -> Tokenizer:
    """Take XLNet, of 32,000 pieces."""
    return next(peer.ours for peer in unigram_peers if peer.name == "uni_xlnet32k")


def segmentations(word: str, scores: dict[str, float]) -> Iterator[tuple[list[str], float]]:
    """Enumerate all ways to write a word, every character of which is a piece."""
    if not word:
        yield [], 0.0
    for size in range(1, len(word) + 1):
        if word[:size] in scores:
            for rest, score in segmentations(word[size:], scores):
                yield [word[:size], *rest], scores[word[:size]] + score


def enumerated(tokenizer: Tokenizer, text: str) -> dict[tuple[int, ...], float]:
    """Give all segmentations of a text of plain words, and their scores."""
    model = tokenizer.spec.model
    assert isinstance(model, UnigramSpec)
    scores = dict(zip(model.pieces, model.scores, strict=True))
    out: dict[tuple[int, ...], float] = {(): 0.0}
    for word in text.split():
        found = [
            (tuple(model.vocab[piece] for piece in pieces), score)
            for pieces, score in segmentations(MARK + word, scores)
        ]
        out = {before + ids: total + score for before, total in out.items() for ids, score in found}
    return out


def chi_square_p(counts: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]) -> float:
    """Give the probability that draws from these chances fit them as badly as the counts do."""
    assert set(counts) <= set(chances)
    draws = counts.total()
    often = [ids for ids, chance in chances.items() if chance * draws >= 5]
    seldom = draws - sum(counts[ids] for ids in often)
    bins = [(counts[ids], chances[ids] * draws) for ids in often]
    bins.append((seldom, draws * (1 - sum(chances[ids] for ids in often))))
    bins = [(seen, wanted) for seen, wanted in bins if wanted > 1e-6]
    square = sum((seen - wanted) ** 2 / wanted for seen, wanted in bins)
    half = torch.tensor([(len(bins) - 1) / 2, square / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def drawn(tokenizer: Tokenizer, text: str, sampling: UnigramSampling) -> Counter[tuple[int, ...]]:
    rows = tokenizer.encode_batch([text] * DRAWS, add_special_tokens=False, sampling=sampling)
    return Counter(map(tuple, rows.tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("nbest", [None, 7])
def test_draws_have_the_exact_probabilities(
    tokenizer: Tokenizer, alpha: float, nbest: int | None
) -> None:
    text = "Hello word"
    scores = sorted(enumerated(tokenizer, text).items(), key=lambda item: -item[1])[:nbest]
    weights = {ids: math.exp(alpha * score) for ids, score in scores}
    total = math.fsum(weights.values())
    chances = {ids: weight / total for ids, weight in weights.items()}
    counts = drawn(tokenizer, text, UnigramSampling(alpha, nbest, seed=20))
    # Of right samplers one in ten thousand seeds fails; this seed is fixed.
    assert chi_square_p(counts, chances) > 1e-4
    # And a wrong one does not pass: the probabilities of another alpha.
    shifted = {ids: math.exp((alpha + 0.1) * score) for ids, score in scores}
    total = math.fsum(shifted.values())
    wrong = {ids: weight / total for ids, weight in shifted.items()}
    assert chi_square_p(counts, wrong) < 1e-4


def test_the_best_are_those_of_the_enumeration(tokenizer: Tokenizer) -> None:
    for text in ("Hello", "un believ able", "abcabcab ba", "the", "xyzzy plugh"):
        every = enumerated(tokenizer, text)
        for count in (1, 2, 10, 1024):
            best = tokenizer.encode_nbest(text, count, add_special_tokens=False)
            assert len(best) == min(count, len(every))
            assert len({tuple(ids.tolist()) for ids, _ in best}) == len(best)
            for ids, score in best:
                assert score == pytest.approx(every[tuple(ids.tolist())], rel=1e-12)
            scores = [score for _, score in best]
            assert scores == sorted(scores, reverse=True)
            assert scores == pytest.approx(sorted(every.values(), reverse=True)[:count], rel=1e-12)


def test_the_first_is_what_encode_gives(
    unigram_peers: list[Peer], unigram_variant_peers: list[Peer]
) -> None:
    rng = random.Random(31)
    for peer in [*unigram_peers, *unigram_variant_peers]:
        maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab)[:3000])
        for text in ["", " ", "<s>  x", *(maker.text() for _ in range(25))]:
            for special in (False, True):
                first = peer.ours.encode_nbest(text, 3, special)[0][0]
                assert first.tolist() == peer.ours.encode(text, special).tolist(), (peer.name, text)


@pytest.mark.slow
def test_scores_are_those_of_sentencepiece(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip(
        "sentencepiece", reason="sentencepiece is not installed; it comes with the extra train"
    )
    texts = ["the naïve ab ab", "words of 中文字", "is  x == é", "Zq", "<foo>ab the", ""]
    for path in train(tmp_path, ("plain", "bytes", "suffix", "no_split")).values():
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ours = Tokenizer.from_pretrained(path)
        for text in texts:
            wanted = theirs.NBestEncode(text, nbest_size=20, return_type="proto").nbests
            found = ours.encode_nbest(text, 20)
            if not text:
                assert [(ids.tolist(), score) for ids, score in found] == [([], 0.0)]
                continue
            scores = {tuple(p.id for p in one.pieces): one.score for one in wanted}
            # Scores there are sums in float32.
            assert [score for _, score in found] == pytest.approx(
                [one.score for one in wanted], rel=1e-5
            )
            for ids, score in found:
                known = scores.get(tuple(ids.tolist()))
                # At the end of the list others may be as good.
                assert known == pytest.approx(score, rel=1e-5) or score == pytest.approx(
                    found[-1][1], rel=1e-5
                )


def test_sentencepiece_models_are_sampled_alike(tmp_path: Path) -> None:
    pytest.importorskip(
        "sentencepiece", reason="sentencepiece is not installed; it comes with the extra train"
    )
    ours = Tokenizer.from_pretrained(train(tmp_path, ("plain",))["plain"])
    assert isinstance(ours.spec.model, SentencePieceSpec)
    text, alpha = "the and", 0.2
    best = ours.encode_nbest(text, 1024)
    assert len(best) < 1024
    weights = {tuple(ids.tolist()): math.exp(alpha * score) for ids, score in best}
    total = math.fsum(weights.values())
    chances = {ids: weight / total for ids, weight in weights.items()}
    for nbest in (None, 1024):
        counts = drawn(ours, text, UnigramSampling(alpha, nbest, seed=3))
        assert chi_square_p(counts, chances) > 1e-4


@pytest.mark.parametrize("nbest", [None, 12])
def test_a_seed_and_a_row_make_a_draw(tokenizer: Tokenizer, nbest: int | None) -> None:
    rng = random.Random(8)
    maker = StringMaker(rng, sorted(tokenizer.spec.model.vocab)[:3000])
    texts = ["unbelievable words", *(maker.text() for _ in range(299))]
    pairs = [maker.text() for _ in range(300)]
    sampling = UnigramSampling(0.2, nbest, seed=2**64 - 1)
    one = tokenizer.encode_batch(texts, pairs, num_threads=1, sampling=sampling)
    four = tokenizer.encode_batch(texts, pairs, num_threads=4, sampling=sampling)
    assert np.array_equal(one.ids, four.ids)
    other = tokenizer.encode_batch(texts, pairs, sampling=UnigramSampling(0.2, nbest, seed=1))
    assert not np.array_equal(one.ids, other.ids)
    alone = tokenizer.encode_batch(texts, num_threads=1, sampling=sampling)
    same = tokenizer.encode_batch([texts[0]] * 40, num_threads=1, sampling=sampling)
    assert same.tolist()[0] == alone.tolist()[0]
    assert len(set(map(tuple, same.tolist()))) > 1
    # The best segmentations come back afterwards.
    plain = tokenizer.encode_batch(texts[:20])
    assert plain.tolist() == [tokenizer.encode(text).tolist() for text in texts[:20]]


@pytest.mark.parametrize("nbest", [None, 5])
def test_cutting_does_not_change_a_draw(tokenizer: Tokenizer, nbest: int | None) -> None:
    texts = ["The quick brown fox, naïve 中文字 and the  lazy dog. " * 20] * 30
    sampling = UnigramSampling(0.1, nbest, seed=6)
    whole = tokenizer.encode_batch(texts, add_special_tokens=False, sampling=sampling)
    for room in (1, 17, 60):
        cut = tokenizer.encode_batch(
            texts, add_special_tokens=False, max_length=room, sampling=sampling
        )
        assert cut.tolist() == [row[:room] for row in whole.tolist()]
    words = [text.split()[:9] for text in texts]
    rows = tokenizer.encode_batch(
        words, is_split_into_words=True, return_offsets=True, sampling=sampling
    )
    assert rows.word_ids.max() == 8


def test_offsets_of_draws_cover_the_text(tokenizer: Tokenizer) -> None:
    text = "The quick brown fox naïvely jumps"
    rows = tokenizer.encode_batch(
        [text] * 200,
        add_special_tokens=False,
        return_offsets=True,
        sampling=UnigramSampling(0.05, seed=9),
    )
    starts = rows.cu_seqlens.tolist()
    for begin, end in itertools.pairwise(starts):
        spans = rows.offsets[begin:end].tolist()
        covered = {place for start, stop in spans for place in range(start, stop)}
        assert covered >= {place for place, char in enumerate(text) if char != " "}
        assert "".join(tokenizer.id_to_token(i) or "" for i in rows.ids[begin:end].tolist())


def test_long_words_are_drawn_in_parts(tokenizer: Tokenizer) -> None:
    sampling = UnigramSampling(0.5, seed=2)
    word = "ab" * 400_000
    rows = tokenizer.encode_batch([word], add_special_tokens=False, sampling=sampling)
    pieces = [tokenizer.id_to_token(i) or "" for i in rows.ids.tolist()]
    assert "".join(pieces) == MARK + word
    cut = tokenizer.encode_batch([word], add_special_tokens=False, max_length=50, sampling=sampling)
    assert cut.tolist()[0] == rows.ids[:50].tolist()


@pytest.mark.exhaustive
def test_too_many_paths_are_an_error(tokenizer: Tokenizer) -> None:
    text = "unbelievable " * 60_000
    with pytest.raises(InputError, match="the 1024 best segmentations of the text take more"):
        tokenizer.encode_nbest(text, 1024)
    with pytest.raises(InputError, match="text at row 1 take more") as caught:
        tokenizer.encode_batch(["a", text], sampling=UnigramSampling(1.0, nbest=1024))
    assert caught.value.row == 1
    assert tokenizer.encode_nbest("a", 1)[0][0].tolist() == tokenizer.encode("a").tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": -0.1}, "alpha is -0.1, expected at least 0"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"alpha": math.inf}, "alpha is inf"),
        ({"alpha": "1"}, "alpha is str '1', expected a number"),
        ({"alpha": True}, "alpha is bool True"),
        ({"alpha": 1.0, "nbest": 0}, "nbest is 0, expected at least 1"),
        ({"alpha": 1.0, "nbest": 1025}, "nbest is 1025"),
        ({"alpha": 1.0, "nbest": 2.5}, "nbest is float 2.5, expected an integer"),
        ({"alpha": 1.0, "seed": -1}, "seed is -1"),
        ({"alpha": 1.0, "seed": 2**64}, "seed is 18446744073709551616"),
        ({"alpha": 1.0, "seed": "x"}, "seed is str 'x'"),
    ],
)
def test_bad_samplings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        UnigramSampling(**arguments)


def test_bad_calls_are_refused(tokenizer: Tokenizer, toy_folder: Path) -> None:
    with pytest.raises(InputError, match="n is 0, expected at least 1"):
        tokenizer.encode_nbest("a", 0)
    with pytest.raises(TextError, match="text is bytes, expected str"):
        tokenizer.encode_nbest(b"a", 1)  # type: ignore[arg-type]
    with pytest.raises(TextError, match="lone surrogate"):
        tokenizer.encode_nbest("a\ud800", 2)
    with pytest.raises(InputError, match=r"sampling is float 0\.1, expected UnigramSampling"):
        tokenizer.encode_batch(["a"], sampling=0.1)  # type: ignore[arg-type]
    wordpiece = Tokenizer.from_pretrained(toy_folder)
    with pytest.raises(InputError, match=r"encode_nbest needs a Unigram model; .*WordPiece"):
        wordpiece.encode_nbest("a", 2)
    with pytest.raises(InputError, match=r"sampling needs a Unigram model; .*WordPiece"):
        wordpiece.encode_batch(["a"], sampling=UnigramSampling(0.1))
