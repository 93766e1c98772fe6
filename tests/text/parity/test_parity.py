"""The same ids, offsets, words, segments and cuts as Hugging Face tokenizers."""

from __future__ import annotations

import json
import lzma
import random
from typing import TYPE_CHECKING

import pytest

from tests.text.parity.long import corpus_files, read_lines
from tests.text.parity.peers import Peer, Settings, draw_settings, shorten
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20_240_229


def check_strings(peer: Peer, count: int, seed: int) -> None:
    """Draw batches of strings and settings and compare them."""
    rng = random.Random(seed)
    maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
    for _ in range(count // 100):
        texts = [maker.text() for _ in range(100)]
        pairs = [maker.text() for _ in range(100)] if rng.random() < 0.4 else None
        settings = draw_settings(rng, peer, paired=pairs is not None, short=True)
        mismatch = peer.compare(texts, pairs, settings)
        assert mismatch is None, f"seed {seed}: {mismatch}"


def test_generated_strings_agree_on_minilm(minilm_peer: Peer) -> None:
    check_strings(minilm_peer, 5000, SEED)


def test_generated_strings_agree_on_the_bert_vocabularies(bert_peers: list[Peer]) -> None:
    for peer in bert_peers:
        check_strings(peer, 4000, SEED + 1)


def test_generated_strings_agree_with_added_tokens_and_other_switches(
    variant_peers: list[Peer],
) -> None:
    for peer in variant_peers:
        check_strings(peer, 2000, SEED + 2)


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_lines_of_every_corpus_and_fixture_agree(
    bert_peers: list[Peer], shared_data: Path, count: int
) -> None:
    rng = random.Random(SEED)
    for path in corpus_files(shared_data):
        if path.stat().st_size > 4_000_000:
            continue  # the long run reads the novels too
        lines = read_lines(path)
        sample = [line[:400] for line in rng.sample(lines, min(len(lines), count))]
        peer = rng.choice(bert_peers)
        mismatch = peer.compare(sample, None, Settings())
        assert mismatch is None, f"{path.name}: {mismatch}"
        settings = draw_settings(rng, peer, paired=True, short=False)
        mismatch = peer.compare(sample, sample[::-1], settings)
        assert mismatch is None, f"{path.name}: {mismatch}"


def test_recorded_minilm_results_are_reproduced(minilm_peer: Peer, shared_data: Path) -> None:
    packed = shared_data / "tokenization/minilm_uncased_golden.jsonl.xz"
    lines = lzma.decompress(packed.read_bytes()).decode("utf-8").split("\n")
    records = [json.loads(line) for line in lines if line]
    encoding = minilm_peer.ours.encode_batch([r["text"] for r in records], return_offsets=True)
    assert encoding.tolist() == [r["ids"] for r in records]
    assert encoding.offsets.tolist() == [pair for r in records for pair in r["offsets"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\0",
        "\ufffd",
        "[CLS]x[SEP]",
        "[MASK] [mask] [[MASK]]",
        "a" * 100,
        "a" * 101,
        "é" * 100,
        "e\u0301" * 51,
        "İ" * 101,
        "한국어 한",
        "\u1112\u1161\u11ab",
        "\u302e\u0301\u302fx",
        "a\u0300\u302e\u0327\u0345b",
        "\U0001d15e\u0327\U0001d165",
        "\u0344\u0344",
        "中文字\u0301\u302e",
        "don't can't I'm",
        "##ing ##",
        "nbsp\u00a0em\u3000ideo\u2028line",
        "👩‍👩‍👧 🇩🇪 ❤️",
        "x" + "\u0301" * 10_000 + "\u302e" + "\u0327" * 10 + "y",
    ],
)
def test_awkward_texts_agree(minilm_peer: Peer, variant_peers: list[Peer], text: str) -> None:
    for peer in [minilm_peer, *variant_peers]:
        assert peer.compare([text], None, Settings()) is None
        assert peer.compare([text], [text], Settings()) is None


def test_every_row_of_a_pair_of_long_texts_agrees_at_every_limit(minilm_peer: Peer) -> None:
    texts = ["one two three four five six seven eight nine ten", "one two three"]
    pairs = ["a b c d e f g h i j k l m n", "a b c d e f g h i j k l m n"]
    for max_length in range(3, 32):
        for left in (False, True):
            settings = Settings(max_length=max_length, left=left)
            assert minilm_peer.compare(texts, pairs, settings) is None
            assert minilm_peer.compare(pairs, texts, settings) is None
            if max_length >= 9:
                settings = Settings(max_length=max_length, left=left, overflow=True, stride=1)
                assert minilm_peer.compare(texts, pairs, settings) is None
                assert minilm_peer.compare(pairs, texts, settings) is None


def test_decoding_agrees(minilm_peer: Peer, variant_peers: list[Peer]) -> None:
    rng = random.Random(SEED)
    words = "I don 't know ! he 's do not , we 've n't 'm 're . ? ' a ' b [CLS] [UNK]"
    for peer in [minilm_peer, *variant_peers]:
        ours, theirs = peer.ours, peer.theirs
        known = [i for i in range(ours.vocab_size) if ours.id_to_token(i) is not None]
        common = [i for token in words.split(" ") if (i := ours.token_to_id(token)) is not None]
        common += [token.id for token in ours.spec.added_tokens]
        for _ in range(300):
            ids = rng.choices(known, k=rng.randrange(12)) + rng.choices(common, k=6)
            rng.shuffle(ids)
            for skip in (False, True):
                expected = theirs.decode(ids, skip_special_tokens=skip)
                assert ours.decode(ids, skip_special_tokens=skip) == expected
        assert [ours.id_to_token(i) for i in known] == [theirs.id_to_token(i) for i in known]


def test_the_comparison_notices_a_difference_and_shrinks_it(
    minilm_peer: Peer, variant_peers: list[Peer]
) -> None:
    cased = next(peer for peer in variant_peers if peer.name.endswith("_bare"))
    crossed = object.__new__(Peer)
    crossed.name, crossed.ours, crossed.theirs = "crossed", cased.ours, minilm_peer.theirs
    mismatch = crossed.compare(["same text", "some words é here"], None, Settings())
    assert mismatch is not None
    assert (mismatch.field, mismatch.text) == ("ids", "é")
    assert shorten("aaaXaaaaYaa", lambda s: "X" in s and "Y" in s) == "XY"
