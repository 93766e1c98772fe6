"""Unigram: the same ids, offsets, words and cuts as Hugging Face tokenizers."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.text import Tokenizer
from tests.text.parity.long import corpus_files, read_lines
from tests.text.parity.peers import Peer, Settings, draw_settings
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_180_429


def check_strings(peer: Peer, count: int, seed: int) -> None:
    """Draw batches of strings and settings and compare them."""
    rng = random.Random(seed)
    maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
    # Theirs nest overflow rows of pairs without end where a text has many tokens.
    short = "bytes" not in peer.name
    for _ in range(count // 100):
        texts = [maker.text() for _ in range(100)]
        pairs = [maker.text() for _ in range(100)] if rng.random() < 0.4 else None
        settings = draw_settings(rng, peer, paired=pairs is not None, short=short)
        mismatch = peer.compare(texts, pairs, settings)
        assert mismatch is None, f"seed {seed}: {mismatch}"


@pytest.mark.parametrize("count", [600, pytest.param(3000, marks=pytest.mark.exhaustive)])
def test_generated_strings_agree_on_published_vocabularies(
    unigram_peers: list[Peer], count: int
) -> None:
    for peer in unigram_peers:
        check_strings(peer, count, SEED)


@pytest.mark.parametrize("count", [200, pytest.param(600, marks=pytest.mark.exhaustive)])
def test_generated_strings_agree_whatever_the_steps(
    unigram_variant_peers: list[Peer], count: int
) -> None:
    for peer in unigram_variant_peers:
        check_strings(peer, count, SEED + 1)


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_lines_of_every_corpus_and_fixture_agree(
    unigram_peers: list[Peer], unigram_variant_peers: list[Peer], shared_data: Path, count: int
) -> None:
    rng = random.Random(SEED)
    for path in corpus_files(shared_data):
        if path.stat().st_size > 4_000_000:
            continue  # the long run reads the novels too
        lines = read_lines(path)
        sample = [line[:400] for line in rng.sample(lines, min(len(lines), count))]
        for peer in (rng.choice(unigram_peers), rng.choice(unigram_variant_peers)):
            mismatch = peer.compare(sample, None, Settings())
            assert mismatch is None, f"{path.name}: {mismatch}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  ",
        "▁",
        "▁ ▁▁",
        "\0",
        "\x01",
        "\x01abc def",
        "x\x01\x01abc",
        "ﬁ\x01ﬁ",
        "<s>x</s> <mask>  <mask> x<unk>y",
        "<mask>ab",
        " \t<mask>\n ab",
        "x" * 5000,
        "xx" * 3000 + " y",
        "e\u0301" * 3000,
        "\u0301" * 3000,
        "😀" * 1500,
        "中文" * 3000,
        "\u3000\u0301x\u3000",
        "\r\n\r\nx\r\n",
        "ｶﾞｷﾞ ﾊﾟ",
        "👩‍👩‍👧 🇩🇪🇩🇪🇩 ❤️ ©\u200d©",
        "क्षत्रिय क्\u200dष க்ஷ",
        "x" + "\u0301" * 10_000 + "y",
        "``quoted'' '''",
        "İI ßẞ ǅ",
        "trailing   ",
        "   leading",
        "a\u00a0b\u2003c\u2028d\u0085e",
    ],
)
def test_awkward_texts_agree(
    unigram_peers: list[Peer], unigram_variant_peers: list[Peer], text: str
) -> None:
    for peer in [*unigram_peers, *unigram_variant_peers]:
        for settings in (Settings(), Settings(max_length=9)):
            mismatch = peer.compare([text], None, settings)
            assert mismatch is None, str(mismatch)[:2000]


def test_decoding_agrees(unigram_peers: list[Peer], unigram_variant_peers: list[Peer]) -> None:
    rng = random.Random(SEED)
    for peer in [*unigram_peers, *unigram_variant_peers]:
        ours, theirs = peer.ours, peer.theirs
        size = ours.vocab_size
        assert size == theirs.get_vocab_size()
        special = [token.id for token in ours.spec.added_tokens]
        marks = [i for i in range(min(size, 3000)) if "▁" in (ours.id_to_token(i) or "")]
        some_bytes = list(range(size - min(size, 300), size))
        for _ in range(100):
            ids = rng.choices(range(size), k=rng.randrange(8)) + rng.choices(marks, k=3)
            ids += rng.choices(special, k=2) + rng.choices(some_bytes, k=rng.randrange(6))
            rng.shuffle(ids)
            for skip in (False, True):
                expected = theirs.decode(ids, skip_special_tokens=skip)
                assert ours.decode(ids, skip_special_tokens=skip) == expected, (peer.name, ids)
        sample = range(0, size, 1 + size // 5000)
        assert [ours.id_to_token(i) for i in sample] == [theirs.id_to_token(i) for i in sample]


def test_a_saved_tokenizer_is_the_same_here_and_there(
    unigram_variant_peers: list[Peer], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    texts = ["Some téxt,  with ﬁve ``quotes'' ▁ and 中文 x ", "NORM Word <Raw> ab [M] x", ""]
    for peer in unigram_variant_peers:
        folder = tmp_path / peer.name
        peer.ours.save(folder)
        again = Tokenizer.from_pretrained(folder)
        assert again.spec.model == peer.ours.spec.model
        assert again.spec.added_tokens == peer.ours.spec.added_tokens
        assert again.encode_batch(texts).tolist() == peer.ours.encode_batch(texts).tolist()
        theirs = AutoTokenizer.from_pretrained(folder)
        assert theirs(texts)["input_ids"] == again.encode_batch(texts).tolist(), peer.name


def test_a_pickled_tokenizer_is_the_same(unigram_variant_peers: list[Peer]) -> None:
    texts = ["Some téxt  here", "▁▁", "x"]
    for peer in unigram_variant_peers[:4]:
        again = pickle.loads(pickle.dumps(peer.ours))
        assert np.array_equal(again.encode_batch(texts).ids, peer.ours.encode_batch(texts).ids)


def test_every_number_of_threads_gives_the_same(unigram_peers: list[Peer]) -> None:
    for peer in unigram_peers:
        maker = StringMaker(random.Random(7), sorted(peer.ours.spec.model.vocab))
        texts = [maker.text() for _ in range(2000)]
        one = peer.ours.encode_batch(texts, return_offsets=True, num_threads=1)
        for threads in (2, 3, 8):
            many = peer.ours.encode_batch(texts, return_offsets=True, num_threads=threads)
            for name in ("ids", "cu_seqlens", "offsets", "word_ids"):
                assert np.array_equal(getattr(one, name), getattr(many, name)), name
