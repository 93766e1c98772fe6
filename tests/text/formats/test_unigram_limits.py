"""A cut text is read only as far as its row reaches, and long words take little memory."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.text.parity.peers import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.text.parity.peers import Peer

MEGABYTE = 1 << 20
# Lone surrogates far behind the row: who reads them fails.
TEXTS = {
    "words": "some words here, ",
    "letters": "a",
    "pairs": "ab",
    "accents": "e\u0301",
    "ideographs": "中文",
    "added": "x <mask> ",
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_lies_far_behind_the_row_is_not_read(
    unigram_variant_peers: list[Peer], name: str
) -> None:
    part = TEXTS[name]
    text = part * (8 * MEGABYTE // len(part)) + "\ud800"
    for peer in unigram_variant_peers:
        if peer.name == "unigram_marks":
            continue  # its Replace could match anywhere in these
        known = peer.ours.encode_batch([part * 400], max_length=40)
        if known.num_truncated == 0:
            continue  # unknown characters in a row are one token: there is no end to read to
        row = peer.ours.encode_batch([text], max_length=40)
        assert len(row.ids) == 40, peer.name


@pytest.mark.exhaustive
def test_long_words_agree_across_the_parts_they_are_taken_in(
    unigram_variant_peers: list[Peer],
) -> None:
    rng = random.Random(3)
    texts = [
        "".join(rng.choices(letters, k=20_000)) for letters in ("ab", "abcdeé中", "x▁", "e\u0301a")
    ]
    for peer in unigram_variant_peers:
        mismatch = peer.compare(texts, None, Settings(add_special_tokens=False))
        assert mismatch is None, str(mismatch)[:2000]


MEASURE = """
import sys
from benchmarks.measuring.memory import process_peak
from encoder_engine.text import Tokenizer
tokenizer = Tokenizer.from_pretrained(sys.argv[1])
text = sys.argv[2] * (100_000_000 // len(sys.argv[2]))
tokenizer.encode_batch([text[:100_000]], max_length=512, return_offsets=True)
before = process_peak().mib
tokenizer.encode_batch([text], max_length=512, return_offsets=True)
print(process_peak().mib - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("part", ["some words, ", "a"])
def test_a_huge_text_cut_short_takes_little_memory(
    unigram_paths: dict[str, Path], part: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(unigram_paths["uni_xlnet32k"]), part],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert float(result.stdout) < 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [*(pytest.param(part, marks=pytest.mark.exhaustive) for part in ("a", "ab")), "e"]
)
def test_a_long_word_of_equal_paths_is_cut_where_all_is_kept(
    unigram_peers: list[Peer], part: str
) -> None:
    text = part * (2 * MEGABYTE // len(part))
    for peer in unigram_peers:
        encoding = peer.ours.encode_batch([text], add_special_tokens=False, return_offsets=True)
        offsets = encoding.offsets.tolist()
        assert offsets[0][0] == 0
        assert offsets[-1][1] == len(text)
        assert all(a[1] == b[0] for a, b in pairwise(offsets[1:]))
