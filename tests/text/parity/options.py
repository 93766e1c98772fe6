"""Compares drawn tokenizer.json files with tokenizers: equal in everything, or refused by type."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from encoder_engine.errors import EncoderEngineError, InputError
from encoder_engine.text import Tokenizer
from tests.text.drawn_files import FileMaker, alphabet, provoking, write_json
from tests.text.parity.peers import Peer, Settings, draw_settings
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["compare_options"]

PER_FILE = 200
BATCH = 50


class SavedPeer(Peer):
    """The tokenizer that was saved and loaded, beside theirs of the first file."""

    def __init__(self, name: str, ours: Tokenizer, peer: Peer) -> None:
        self.name, self.ours, self.theirs = name, ours, peer.theirs


def compare_options(
    strings: int, seed: int, folder: Path, *, stop: bool = True
) -> tuple[Counter[str], list[str]]:
    """Draw files and strings until so many were compared; give counts, and what differed."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    number = 0
    while counts["strings"] < strings:
        place = f"{seed}:{number}"
        fault = compare_file(place, folder / f"drawn{number}", counts)
        if fault is not None:
            faults.append(f"file {place}: {fault}")
            if stop:
                break
        number += 1
    return counts, faults


def compare_file(place: str, folder: Path, counts: Counter[str]) -> str | None:
    """Draw the file of a place in the sequence, and compare it."""
    rng = random.Random(place)
    file = FileMaker(rng).file()
    folder.mkdir()
    path = folder / "tokenizer.json"
    path.write_text(write_json(file), encoding="utf-8")
    kind = file["model"]["type"]
    counts["files"] += 1
    try:
        peer = Peer(place, path)
    except EncoderEngineError as error:
        counts[f"refused {kind}"] += 1
        counts["refused"] += 1
        del error
        return None
    counts[f"read {kind}"] += 1
    again = save_again(peer.ours, folder / "saved")
    if isinstance(again, str):
        return again
    letters = alphabet(file)
    maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
    saved = SavedPeer(f"{place} saved", again, peer)
    for _ in range(PER_FILE // BATCH):
        texts, pairs, settings = draw_batch(rng, peer, letters, maker)
        counts["strings"] += BATCH
        for one in (peer, saved):
            fault = compare_batch(one, texts, pairs, settings, counts)
            if fault is not None:
                return fault
        fault = compare_decoding(peer, again, texts)
        if fault is not None:
            return fault
    return None


def compare_batch(
    peer: Peer,
    texts: list[str],
    pairs: list[str] | None,
    settings: Settings,
    counts: Counter[str],
) -> str | None:
    """Compare a batch, or each text of one on which the library panics."""
    try:
        mismatch = peer.compare(texts, pairs, settings)
        return None if mismatch is None else str(mismatch)
    except BaseException as error:
        if not panicked(error):
            raise
    for index, text in enumerate(texts):
        pair = None if pairs is None else [pairs[index]]
        try:
            mismatch = peer.compare([text], pair, settings)
        except BaseException as error:
            if not panicked(error):
                raise
            counts["panics"] += 1
            continue
        if mismatch is not None:
            return str(mismatch)
    return None


def panicked(error: BaseException) -> bool:
    """Whether the library broke down, which is no Exception."""
    return type(error).__name__ == "PanicException"


def save_again(ours: Tokenizer, folder: Path) -> Tokenizer | str:
    """Save and load; a tokenizer that was read must come back."""
    ours.save(folder)
    try:
        return Tokenizer.from_pretrained(folder)
    except EncoderEngineError as error:
        return f"cannot be loaded again: {error}"


def draw_batch(
    rng: random.Random, peer: Peer, letters: list[str], maker: StringMaker
) -> tuple[list[str], list[str] | None, Settings]:
    """Draw texts, perhaps pairs, and how they are cut."""

    def text() -> str:
        return provoking(rng, letters) if rng.random() < 0.8 else maker.text()[:60]

    texts = [text() for _ in range(BATCH)]
    pairs = [text() for _ in range(BATCH)] if rng.random() < 0.3 else None
    settings = Settings()
    if rng.random() < 0.5:
        settings = draw_settings(rng, peer, paired=pairs is not None, short=False)
    return texts, pairs, settings


def compare_decoding(peer: Peer, again: Tokenizer, texts: list[str]) -> str | None:
    """Compare what becomes of the ids."""
    for text in texts:
        try:
            row = peer.ours.encode(text).tolist()
        except InputError:
            continue
        for skip in (False, True):
            try:
                theirs = peer.theirs.decode(row, skip_special_tokens=skip)
            except BaseException as error:
                if not panicked(error):
                    raise
                continue
            for ours in (peer.ours, again):
                found = ours.decode(row, skip_special_tokens=skip)
                if found != theirs:
                    return f"decoding of {row} with skip={skip}: {found!r}, theirs {theirs!r}"
    return None
