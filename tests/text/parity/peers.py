"""Compares the tokenizer with Hugging Face tokenizers, whole results at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer as HubTokenizer

from encoder_engine.errors import InputError
from encoder_engine.text import Encoding, Tokenizer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One way to call both."""

    add_special_tokens: bool = True
    max_length: int | None = None
    truncation: str = "longest_first"
    stride: int = 0
    overflow: bool = False
    left: bool = False
    num_threads: int | None = None


@dataclass(frozen=True)
class Mismatch:
    """A row on which the two differ, shrunk as far as it goes."""

    tokenizer: str
    settings: Settings
    text: str
    pair: str | None
    field: str
    ours: object
    theirs: object

    def __str__(self) -> str:
        """Show everything needed to see it again."""
        return (
            f"{self.tokenizer}: {self.field} differs on {self.text!r} {self.pair!r} with "
            f"{self.settings}\n  ours   {self.ours}\n  theirs {self.theirs}"
        )


class Peer:
    """Our tokenizer and theirs, read from one tokenizer.json."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.ours = Tokenizer.from_pretrained(path)
        self.theirs = HubTokenizer.from_file(str(path))
        self.theirs.no_truncation()
        self.theirs.no_padding()

    def num_special(self, paired: bool, settings: Settings) -> int:
        """Count the template tokens of a row."""
        template = self.ours.spec.pair if paired else self.ours.spec.single
        return sum(len(p.ids) for p in template) if settings.add_special_tokens else 0

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, settings: Settings
    ) -> Encoding:
        """Encode with ours."""
        return self.ours.encode_batch(
            texts,
            pairs,
            add_special_tokens=settings.add_special_tokens,
            max_length=settings.max_length,
            truncation=settings.truncation,
            stride=settings.stride,
            return_offsets=True,
            num_threads=settings.num_threads,
            return_overflow=settings.overflow,
            truncation_side="left" if settings.left else "right",
        )

    def encode_theirs(
        self, texts: Sequence[str], pairs: Sequence[str] | None, settings: Settings
    ) -> list[Any]:
        """Encode with theirs, the settings applied first."""
        if settings.max_length is None:
            self.theirs.no_truncation()
        else:
            self.theirs.enable_truncation(
                settings.max_length,
                stride=settings.stride,
                strategy=settings.truncation,
                direction="left" if settings.left else "right",
            )
        inputs: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        return list(
            self.theirs.encode_batch(inputs, add_special_tokens=settings.add_special_tokens)
        )

    def compare(
        self, texts: Sequence[str], pairs: Sequence[str] | None, settings: Settings
    ) -> Mismatch | None:
        """Compare a batch; on a difference, find a row that shows it and shrink that."""
        try:
            equal = self._equal(texts, pairs, settings)
        except InputError:
            equal = False  # some row cannot be cut as asked: one by one
        if equal:
            return None
        for index, text in enumerate(texts):
            pair = None if pairs is None else pairs[index]
            if self._difference(text, pair, settings) is not None:
                return self._shrink(text, pair, settings)
        return None

    def _equal(self, texts: Sequence[str], pairs: Sequence[str] | None, settings: Settings) -> bool:
        ours = self.encode(texts, pairs, settings)
        theirs = self.encode_theirs(texts, pairs, settings)
        cut = sum(bool(e.overflowing) for e in theirs)
        rows = [row for e in theirs for row in ([e, *e.overflowing] if settings.overflow else [e])]
        ids = [number for row in rows for number in row.ids]
        return (
            ours.num_truncated == (0 if settings.overflow else cut)
            and np.array_equal(ours.lengths, [len(row.ids) for row in rows])
            and np.array_equal(ours.ids, ids)
            and [tuple(o) for o in ours.offsets.tolist()] == [o for r in rows for o in r.offsets]
            and ours.word_ids.tolist() == [-1 if w is None else w for r in rows for w in r.word_ids]
            and (
                self._segments_differ(pairs, settings)
                or np.array_equal(ours.type_ids, [t for r in rows for t in r.type_ids])
            )
            and np.array_equal(
                ours.special_tokens_mask, [bool(s) for r in rows for s in r.special_tokens_mask]
            )
        )

    def _segments_differ(self, pairs: Sequence[str] | None, settings: Settings) -> bool:
        """Whether segments differ by choice: theirs of overflow rows are not the template's."""
        second = next(p for p in self.ours.spec.pair if p.kind == "second")
        return pairs is not None and settings.overflow and second.type_id == 0

    def _difference(
        self, text: str, pair: str | None, settings: Settings
    ) -> tuple[str, object, object] | None:
        """Name the first field that differs on one text or pair."""
        pairs = None if pair is None else [pair]
        try:
            ours = self.encode([text], pairs, settings)
        except InputError as error:
            if "stride" in str(error):
                return None  # theirs panics
            try:
                theirs = self.encode_theirs([text], pairs, settings)
            except Exception:  # they raise no type of their own
                return None
            return "error", str(error), theirs[0].ids
        theirs = self.encode_theirs([text], pairs, settings)
        rows = [theirs[0], *theirs[0].overflowing] if settings.overflow else theirs
        starts = ours.cu_seqlens.tolist()
        segments = "type_ids", _cut(ours.type_ids, starts), [row.type_ids for row in rows]
        fields: list[tuple[str, object, object]] = [
            ("ids", ours.tolist(), [row.ids for row in rows]),
            ("offsets", _cut(ours.offsets, starts), [[list(o) for o in r.offsets] for r in rows]),
            (
                "word_ids",
                _cut(ours.word_ids, starts),
                [[-1 if word is None else word for word in row.word_ids] for row in rows],
            ),
            *(() if self._segments_differ(pairs, settings) else (segments,)),
            (
                "special_tokens_mask",
                _cut(ours.special_tokens_mask.astype(int), starts),
                [row.special_tokens_mask for row in rows],
            ),
            (
                "truncated",
                ours.num_truncated > 0,
                bool(theirs[0].overflowing) and not settings.overflow,
            ),
        ]
        return next((field for field in fields if field[1] != field[2]), None)

    def _shrink(self, text: str, pair: str | None, settings: Settings) -> Mismatch:
        """Remove characters as long as a difference remains."""
        text = shorten(text, lambda t: self._difference(t, pair, settings) is not None)
        if pair is not None:
            pair = shorten(pair, lambda p: self._difference(text, p, settings) is not None)
        found = self._difference(text, pair, settings)
        assert found is not None
        return Mismatch(self.name, settings, text, pair, *found)


def _cut(values: Any, starts: list[int]) -> list[Any]:
    listed = values.tolist()
    return [listed[a:b] for a, b in pairwise(starts)]


def shorten(text: str, fails: Callable[[str], bool]) -> str:
    """Delete ever smaller stretches while ``fails`` still holds."""
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if fails(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def draw_settings(rng: random.Random, peer: Peer, *, paired: bool, short: bool) -> Settings:
    """Draw settings that both accept: their stride must be below what either text keeps.

    Overflow rows of pairs are only for ``short`` texts: there is one for each pair of slices, and
    theirs nest copies of copies until memory ends.
    """
    add_special = rng.random() < 0.8
    if rng.random() < 0.4:
        return Settings(add_special_tokens=add_special, num_threads=rng.choice((None, 1, 2)))
    template = peer.num_special(paired, Settings(add_special_tokens=add_special))
    # They count the template of a single text against the stride even for pairs without it.
    room = rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 29, 64))
    overflow = rng.random() < 0.5 and room >= 2 and (short or not paired)
    stride = rng.randrange((room + 1) // 2) if overflow and room // 2 >= 1 else 0
    stride = min(stride, max(room // 2 - 1, 0))
    names = ["longest_first", "only_first"] + (["only_second"] if paired else [])
    max_length = max(room + template, peer.num_special(False, Settings()) + stride)
    return Settings(
        add_special_tokens=add_special,
        max_length=max_length,
        truncation=rng.choice(names),
        stride=stride,
        overflow=overflow,
        left=rng.random() < 0.3,
        num_threads=rng.choice((None, 1, 2)),
    )


def variants(path: Path, folder: Path) -> list[Path]:
    """Write tokenizer.json files that differ from the given one in options and added tokens."""
    base = json.loads(path.read_text(encoding="utf-8"))
    size = len(base["model"]["vocab"])

    def token(content: str, number: int, **flags: bool) -> dict[str, object]:
        names = ("single_word", "lstrip", "rstrip", "normalized", "special")
        return {"id": number, "content": content} | {n: flags.get(n, False) for n in names}

    raw = [
        token("<extra>", size, lstrip=True, special=True),
        token("ab", size + 1, single_word=True),
        token("abab", size + 2),
        token("[MASK][", size + 3, rstrip=True),
        token("é中", size + 4, lstrip=True, rstrip=True),
        token(" x", size + 5),
        token("\u0301", size + 6),
    ]
    normalized = [
        token("NORM", size, normalized=True),
        token("É 中", size + 1, normalized=True, lstrip=True, rstrip=True),
        token("Word", size + 2, normalized=True, single_word=True),
        token("<Raw>", size + 3, rstrip=True),
        token("a", size + 4, normalized=True, single_word=True),
        token("##", size + 5, normalized=True),
    ]
    # An added token that the vocabulary holds keeps its id there; the rest are numbered in order.
    out: list[Path] = []
    changes: list[tuple[str, list[dict[str, object]], dict[str, object]]] = [
        ("raw_added", raw, {}),
        ("normalized_added", normalized, {}),
        ("unclean", raw, {"clean_text": False, "strip_accents": True}),
        ("unclean_normalized", normalized, {"clean_text": False, "strip_accents": True}),
        ("accents", [], {"strip_accents": False, "lowercase": True}),
        ("no_cjk", normalized, {"handle_chinese_chars": False, "lowercase": False}),
        ("bare", [], dict.fromkeys(("clean_text", "handle_chinese_chars", "lowercase"), False)),
    ]
    for name, added, switches in changes:
        config = json.loads(json.dumps(base))
        vocab = config["model"]["vocab"]
        number = size
        for item in added:
            if item["content"] in vocab:
                item = {**item, "id": vocab[item["content"]]}
            else:
                item = {**item, "id": number}
                number += 1
            config["added_tokens"].append(item)
        config["normalizer"].update(switches)
        config["model"]["max_input_chars_per_word"] = 30 if name == "unclean" else 100
        target = folder / f"{path.stem.partition('.')[0]}_{name}.json"
        target.write_text(json.dumps(config), encoding="utf-8")
        out.append(target)
    return out
