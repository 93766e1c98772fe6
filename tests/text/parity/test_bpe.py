"""BPE beside tokenizers and beside plain merging: drawn merges, every character, long words."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer as Library

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer
from encoder_engine.text.byte_level import BYTE_LETTERS
from encoder_engine.text.formats.bpe_json import ISOLATED
from encoder_engine.text.spec.bpe import BpeSpec
from encoder_engine.text.spec.library import LibrarySpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN = LEVEL | {"use_regex": False}


def split(expression: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


SPLITTERS = {
    "gpt2": LEVEL,
    "whole": PLAIN,
    "digits": sequence({"type": "Digits", "individual_digits": True}, LEVEL),
    "clip": sequence(split(CLIP, "Removed", invert=True), LEVEL),
    **{f"split {place}": sequence(split(text), PLAIN) for place, text in enumerate(ISOLATED)},
}
# A character stands between these, and at the ends of a text.
CONTEXTS = (
    "{}",
    "a{}",
    "{}a",
    " {}",
    "{} ",
    "1{}1",
    "'{}",
    "{}'s",
    ".{}",
    "\n{}\n",
    "  {}  {}",
    "{}{}b",
)


def make(
    folder: Path,
    merges: Sequence[tuple[str, str]],
    pre_tokenizer: dict[str, Any] | None = LEVEL,
    **model: Any,
) -> Path:
    """Write a byte-level model of these merges."""
    suffix = model.get("end_of_word_suffix") or ""
    letters = [letter + end for end in dict.fromkeys(("", suffix)) for letter in BYTE_LETTERS]
    vocab = dict.fromkeys([*letters, *model.pop("more", ()), *(a + b for a, b in merges)])
    top: dict[str, Any] = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "added_tokens": [],
        "pre_tokenizer": pre_tokenizer,
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix")),
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(vocab)},
            "merges": [list(merge) for merge in merges],
            **model,
        },
    }
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(top), encoding="utf-8")
    return path


def check_equal(path: Path, texts: Sequence[str]) -> Tokenizer:
    """Compare ids, offsets and word ids with the library's."""
    ours, theirs = Tokenizer.from_pretrained(path), Library.from_file(str(path))
    assert isinstance(ours.spec.model, BpeSpec)
    found = ours.encode_batch(texts, return_offsets=True)
    starts = found.cu_seqlens.tolist()
    for text, wanted, start, stop in zip(
        texts, theirs.encode_batch(list(texts)), starts, starts[1:], strict=False
    ):
        assert found.ids[start:stop].tolist() == wanted.ids, text
        assert [*map(tuple, found.offsets[start:stop].tolist())] == wanted.offsets, text
        assert found.word_ids[start:stop].tolist() == wanted.word_ids, text
    return ours


def draw_merges(rng: random.Random, letters: str, suffix: str) -> list[tuple[str, str]]:
    """Draw merges of few letters: ties, several ways to a token, repeated and unreachable ones."""
    merges: list[tuple[str, str]] = []
    inner, last = list(letters), [letter + suffix for letter in letters]
    for _ in range(rng.randint(1, 60)):
        ends = bool(suffix) and rng.random() < 0.4
        left, right = rng.choice(inner), rng.choice(last if ends else inner)
        if len(left + right) > 16 + len(suffix):
            continue
        merges.append((left, right))
        (last if ends else inner).append(left + right)
    if rng.random() < 0.6:
        rng.shuffle(merges)
    return merges


def merge_plainly(text: str, merges: Sequence[tuple[str, str]], suffix: str) -> list[str]:
    """Merge the letters of one word, a pair at a time: the lowest rank, then the leftmost."""
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    symbols = [*text[:-1], text[-1] + suffix]
    while True:
        pairs = list(pairwise(symbols))
        known = [(ranks[pair], place) for place, pair in enumerate(pairs) if pair in ranks]
        if not known:
            return symbols
        place = min(known)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


@pytest.mark.parametrize("seed", range(40))
def test_drawn_merges_give_what_plain_merging_and_the_library_give(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    letters, suffix = "abcd"[: rng.randint(1, 4)], rng.choice(("", "", "</w>"))
    merges = draw_merges(rng, letters, suffix)
    words = ["".join(rng.choices(letters, k=rng.randint(1, 40))) for _ in range(60)]
    words += [rng.choice(letters) * rng.randint(1, 70) for _ in range(10)]
    whole: dict[str, Any] = {} if suffix else {"ignore_merges": rng.random() < 0.3}
    more = ["".join(rng.choices(letters, k=5)) for _ in range(3)] if whole else []
    path = make(tmp_path, merges, end_of_word_suffix=suffix or None, more=more, **whole)
    ours = check_equal(path, words)
    if whole.get("ignore_merges"):
        return
    for word in words:
        tokens = [ours.id_to_token(number) for number in ours.encode(word).tolist()]
        assert tokens == merge_plainly(word, merges, suffix)


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.exhaustive
def test_every_character_is_cut_as_the_library_cuts_it(tmp_path: Path, name: str) -> None:
    path = make(tmp_path, [("a", "'"), ("Ġ", "a"), ("'", "s"), ("Ġ", "Ġ")], SPLITTERS[name])
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for context in CONTEXTS:
        texts = [
            "".join(context.format(chr(code), chr(code)) for code in codes[place : place + 97])
            for place in range(0, len(codes), 97)
        ]
        check_equal(path, texts)


@pytest.mark.parametrize("name", SPLITTERS)
def test_awkward_characters_are_cut_as_the_library_cuts_them(tmp_path: Path, name: str) -> None:
    path = make(tmp_path, [("a", "'"), ("Ġ", "a"), ("'", "s"), ("Ġ", "Ġ")], SPLITTERS[name])
    rng = random.Random(name)
    alphabet = "ab 'sStmd1\u0663\n\r\t .!é中ſ\u00a0\u3000\u0085\u0301😀\0\u2581\U00011de0"
    check_equal(path, ["".join(rng.choices(alphabet, k=k)) for k in range(1, 400, 3)])
    # Words and runs around the ends of the stretches that are cut at once.
    check_equal(path, [c * n + " 'll" for c in alphabet for n in (61, 2047, 4099)])


def test_words_of_any_length_are_encoded_as_the_library_does(tmp_path: Path) -> None:
    merges = [("a", "a"), ("aa", "aa"), ("a", "b"), ("ab", "ab"), ("b", "aa")]
    texts = ["a" * 200_001, "ab" * 100_000, "aab" * 70_000, "a" * 70_000 + " b" + "é" * 70_000]
    check_equal(make(tmp_path, merges), texts)


@pytest.mark.parametrize("seed", range(4))
def test_runs_of_long_tokens_are_encoded_as_the_library_does(tmp_path: Path, seed: int) -> None:
    """A long walk through the vocabulary is remembered; later walks that use it give equal ids."""
    rng = random.Random(seed)
    merges = [("-" * 2**power, "-" * 2**power) for power in range(7)]
    merges += [("-" * 32, "-" * 16), ("-" * 48, "a"), ("a", "-" * 16), ("-" * 64, "-" * 6)]
    merges.insert(3, ("---", "---"))
    merges.insert(1, ("--", "-"))
    if seed:
        rng.shuffle(merges)
    texts = ["-" * size for size in range(1, 300)]
    texts += [
        "".join(rng.choice(("-", "-", "a")) * rng.choice((1, 7, 48, 64, 100)) for _ in range(8))
        for _ in range(100)
    ]
    check_equal(make(tmp_path, merges, PLAIN), texts)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pre_tokenizer": sequence(split("[ab]+"), PLAIN)}, r"regular expression '\[ab\]\+'"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer Whitespace is not"),
        ({"continuing_subword_prefix": "##"}, "a prefix of later pieces"),
        ({"pre_tokenizer": None}, "characters without a token would vanish"),
        ({"end_of_word_suffix": "s"}, "the suffix 's' within a word"),
    ],
)
def test_what_is_not_recognised_is_the_librarys_for_a_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    merges = [] if "continuing_subword_prefix" in change else [("a", "s"), ("as", "b")]
    model = Tokenizer.from_pretrained(make(tmp_path, merges, **change)).spec.model
    assert isinstance(model, LibrarySpec)
    assert re.search(reason, model.reason)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda model: model["merges"].append(["a", "nope"]), "a part that is not in the voc"),
        (lambda model: model["merges"].append(["a", "b"]), "the result 'ab', which is not in"),
        (lambda model: model["merges"].append("a b"), "must be a list"),
        (lambda model: model["merges"].append(["a", ""]), "a part that is not in the vocabulary"),
        (lambda model: model["vocab"].update(twice=0), "two tokens share an id"),
        (lambda model: model.update(dropout=0.1), "dropout makes every encoding different"),
    ],
)
def test_a_spoilt_model_is_refused(tmp_path: Path, spoil: Any, message: str) -> None:
    path = make(tmp_path, [("a", "a")])
    top = json.loads(path.read_text("utf-8"))
    spoil(top["model"])
    path.write_text(json.dumps(top), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(path)


@pytest.mark.parametrize(
    ("merge", "more", "message"),
    [
        (["a", "##c"], [], "a part that is not in the vocabulary"),
        (["a", "##b"], ["##b"], "the result 'ab', which is not in the vocabulary"),
        (["a", "b"], [], "a right part without the prefix '##'"),
        (["a", "\u4e2d"], ["\u4e2d", "a\u4e2d"], "a right part without the prefix '##'"),
    ],
)
def test_merges_on_which_the_library_breaks_down_are_refused(
    tmp_path: Path, merge: list[str], more: list[str], message: str
) -> None:
    """It ends the process where a merge of a model with a prefix lacks the prefix."""
    path = make(tmp_path, [], more=more, continuing_subword_prefix="##")
    top = json.loads(path.read_text("utf-8"))
    top["model"]["merges"] = [merge]
    path.write_text(json.dumps(top), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(path)


def test_merges_with_a_prefix_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    path = make(tmp_path, [], more=["##b", "ab", "##a"], continuing_subword_prefix="##")
    top = json.loads(path.read_text("utf-8"))
    top["model"]["merges"] = [["a", "##b"]]
    path.write_text(json.dumps(top), encoding="utf-8")
    ours = Tokenizer.from_pretrained(path)
    theirs = Library.from_file(str(path))
    for text in ("ab", "aab", "abab ab"):
        assert ours.encode(text).tolist() == theirs.encode(text).ids
