"""Added tokens with every mix of flags, against the library and the oracle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer
from tests import ROOT
from tests.text.oracle.reference import ReferenceTokenizer
from tests.text.parity.peers import Peer, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "foo", "bar", "a", "##a", "b", "##b", "ab")
SWITCHES = ("clean_text", "lowercase", "strip_accents", "handle_chinese_chars")
TOKENS = (
    *("[MASK]", "foo", "bar", "foo ", "a", "ab", "x ", "\u200b", "\u200ba", "\U0001d165", "\u302e"),
    *("\u0301", "e\u0301", "中", "é", "A", "[SEP]", "a b", "\x01", "a\u200b", "b\u302e"),
)
# Of which no two are the same once normalized, nor nothing.
DISTINCT = ("foo", "bar", "foo ", "a", "ab", "x ", "中", "é", "a b", "[SEP]", "b\u302e", "\u302e")
# The library fails where a token takes in the white space with which the next begins.
SPACE_FIRST = (" x", " ", "  ", "\t", "\tfoo")
PARTS = (
    *TOKENS,
    *SPACE_FIRST,
    *(" ", "  ", "\t", "\u3000", "x", "b", "Foo", "!", "\u0327", "\xa0", "\x85", "\n"),
)


def make(folder: Path, tokens: Sequence[tuple[str, Sequence[str]]], **switches: bool) -> Peer:
    """Write a small tokenizer with added tokens, each with the flags named, and read it twice."""
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    Tokenizer.from_pretrained(folder / "vocab.txt", lowercase=True).save(folder / "saved")
    config = json.loads((folder / "saved/tokenizer.json").read_text(encoding="utf-8"))
    config["normalizer"].update(switches)
    vocab = config["model"]["vocab"]
    known = {token["content"]: token for token in config["added_tokens"]}
    following = len(vocab)
    for content, flags in tokens:
        number = vocab.get(content, following)
        following += content not in vocab
        said = {"id": number, "content": content} | {flag: flag in flags for flag in FLAGS}
        known.setdefault(content, said).update(said)
    config["added_tokens"] = list(known.values())
    path = folder / "added.json"
    path.write_text(json.dumps(config))
    return Peer("added", path)


def check(peer: Peer, texts: list[str], settings: Settings) -> None:
    """Compare with the library, then with the oracle."""
    mismatch = peer.compare(texts, None, settings)
    assert mismatch is None, f"{peer.ours.spec.added_tokens[-5:]}: {mismatch}"
    oracle = ReferenceTokenizer(peer.ours.spec)
    found = peer.encode(texts, None, settings)
    rows = [oracle.encode(text, max_length=settings.max_length)[0] for text in texts]
    assert found.tolist() == [row.ids for row in rows]
    assert [tuple(o) for o in found.offsets.tolist()] == [o for row in rows for o in row.offsets]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([("[MASK]", ["rstrip"]), ("bar", ["lstrip", "normalized"])], "[MASK] bar"),
        ([("[MASK]", ["lstrip"]), ("foo ", ["normalized"])], "foo [MASK]"),
        ([("[MASK]", ["lstrip"]), ("foo ", ["normalized"])], "foo   [MASK] foo  [SEP]foo "),
        ([("\u200b", [])], "a\U0001d165\u200ba"),
        ([("\u200b", [])], "a\u302e\u200b\u0301a\u200b"),
        ([("\u200ba", ["single_word"])], "\u302e\u200ba \u302e\u200bb"),
        ([("ab", ["rstrip"]), ("  ", ["lstrip"])], "ab  "),
        ([("[MASK]", ["rstrip"]), ("\t", [])], "[MASK] \t"),
        ([("中", ["normalized"]), ("[MASK]", ["lstrip"])], "中 [MASK] 中[MASK]"),
    ],
)
def test_white_space_and_removed_characters_around_added_tokens_agree(
    tmp_path: Path, tokens: list[tuple[str, list[str]]], text: str
) -> None:
    check(make(tmp_path, tokens), [text], Settings())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_added_tokens_with_random_flags_agree(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(20):
        spaces = rng.random() < 0.4
        flags = [flag for flag in FLAGS if not (spaces and flag == "rstrip")]
        pool = [*TOKENS, *(SPACE_FIRST if spaces else ())]
        chosen = rng.sample(pool, rng.randrange(1, 6))
        tokens = [(name, [flag for flag in flags if rng.random() < 0.4]) for name in chosen]
        switches = {switch: rng.random() < 0.7 for switch in SWITCHES}
        try:
            peer = make(tmp_path, tokens, **switches)
        except TokenizerFileError:
            continue  # two are the same once normalized
        read += 1
        texts = ["".join(rng.choices(PARTS, k=rng.randrange(1, 14))) for _ in range(60)]
        check(peer, texts, Settings(max_length=rng.choice((None, None, 3, 5))))
    assert read > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_long_texts_are_searched_in_pieces_as_if_whole(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(DISTINCT, 5)
    tokens = [(name, ["normalized", *(f for f in FLAGS if rng.random() < 0.4)]) for name in names]
    tokens += [("[MASK]", ["lstrip", "rstrip"]), (" long token of " * 8 + "x", ["normalized"])]
    peer = make(tmp_path, tokens)
    parts = [*PARTS, " " * 3000, "a" * 3000, " long token of " * 8 + "x", " long token of " * 5]
    texts = ["".join(rng.choices(parts, k=3000)) for _ in range(4)]
    # White space around where a piece ends, which is first at 4,096 characters.
    edge = "b" * 4090
    texts += [f"{edge[size:]}{' ' * 40}{name}  b" for size in (0, 30, 45) for name in names]
    texts += [f"{edge[size:]} foo{' ' * 9000}[MASK] b" for size in range(0, 12, 3)]
    mismatch = peer.compare(texts, None, Settings())
    assert mismatch is None, str(mismatch)[:2000]
    assert peer.compare(texts, None, Settings(max_length=700)) is None


def test_a_cut_text_is_not_read_to_its_end_for_normalized_tokens(tmp_path: Path) -> None:
    peer = make(tmp_path, [("foo", ["normalized"])])
    # Beyond the cut stands what cannot be encoded: it would be an error if it were read.
    text = "a b " * 100_000 + "\ud800"
    tracemalloc.start()
    found = peer.ours.encode_batch([text], max_length=512)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.lengths.tolist() == [512]
    assert found.num_truncated == 1
    assert peak < 1_000_000


GROWTH = """
import resource, sys
from encoder_engine.text import Tokenizer
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
tokenizer = Tokenizer.from_pretrained(sys.argv[1])
tokenizer.encode_batch(["a foo"] * 10)
# White space that a later token might take in must be kept until the word behind it.
text = " " * 8_000_000 + "a"
before = resident()
assert tokenizer.encode_batch([text], num_threads=1).tolist() == [[2, 7, 3]]
print((resident() - before) // 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_long_segment_took_is_given_back(tmp_path: Path) -> None:
    # In a process of its own: what other work leaves of its memory is not counted.
    make(tmp_path, [("foo", ["normalized"])])
    result = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path / "added.json")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert int(result.stdout) < 30
