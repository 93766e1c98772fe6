"""Compares with tokenizers and sentencepiece at length: corpora, and strings drawn from a seed.

python -m tests.text.parity.long --model unigram --strings 200000 --seed 1 --data ../shared/data
python -m tests.text.parity.long --options --strings 200000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests import ROOT

sys.path.insert(0, str(ROOT))

from tests.text.parity.options import compare_options
from tests.text.parity.peers import Peer, Settings, draw_settings, variants
from tests.text.sentencepiece_models import SentencePiecePeer, train
from tests.text.strings import StringMaker
from tests.text.unigram_files import unpack_unigram, write_unigram_files

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("uncased", "cased", "multi_cased")
BATCH = 512


def unpack(data: Path, folder: Path) -> list[Path]:
    """Unpack the tokenizer.json files of the three BERT vocabularies."""
    out: list[Path] = []
    for name in NAMES:
        path = folder / f"{name}.json"
        packed = data / f"vocab/wp_{name}.tokenizer.json.xz"
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        out.append(path)
    return out


def wordpiece_peers(data: Path, folder: Path, *, more: bool) -> list[Peer]:
    """Read the three BERT tokenizers here and there, and variants of two of them."""
    paths = unpack(data, folder)
    extra = [p for path in paths[:2] for p in variants(path, folder)] if more else []
    return [Peer(path.stem, path) for path in [*paths, *extra]]


def unigram_peers(data: Path, folder: Path, *, more: bool) -> list[Peer]:
    """Read XLM-R and XLNet here and there, and files with every step that there is."""
    paths = unpack_unigram(data, folder)
    source = json.loads(paths[1].read_text(encoding="utf-8"))
    extra = write_unigram_files(source, folder) if more else []
    return [Peer(path.stem, path) for path in [*paths, *extra]]


def sentencepiece_peers(data: Path, folder: Path, *, more: bool) -> list[SentencePiecePeer]:
    """Read the models of XLM-R and XLNet here and there, and trained ones of every kind."""
    path = folder / "xlmr.model"
    path.write_bytes(lzma.decompress((data / "vocab/xlmr_rebuilt.model.xz").read_bytes()))
    paths = {"xlmr": path, "xlnet": data / "vocab/xlnet_spiece.model"}
    paths |= train(folder) if more else {}
    return [SentencePiecePeer(name, path) for name, path in paths.items()]


def read_lines(path: Path) -> list[str]:
    """Read a file's lines, packed or not; a .json file gives its strings."""
    raw = path.read_bytes()
    raw = lzma.decompress(raw) if path.suffix == ".xz" else raw
    text = raw.decode("utf-8", "replace")
    if path.suffix == ".json":
        return [item for item in json.loads(text) if isinstance(item, str)]
    return text.split("\n")


def corpus_files(data: Path) -> list[Path]:
    """List the texts: corpora, fixtures, and the files of two tasks."""
    folders = ("corpus", "tokenization", "tokenization/llamacpp", "unicode", "sts", "sts/multi")
    return [
        path
        for folder in (*folders, "cls")
        for path in sorted((data / folder).glob("*"))
        if path.is_file()
    ]


def batches(lines: list[str], size: int) -> Iterator[list[str]]:
    """Cut a list into batches."""
    for at in range(0, len(lines), size):
        yield lines[at : at + size]


def run_corpora(peers: list[Peer], data: Path, rng: random.Random) -> int:
    """Compare every line of every file; a quarter of the batches as pairs, some cut."""
    total = 0
    for path in corpus_files(data):
        lines = read_lines(path)
        for peer in peers:
            for batch in batches(lines, BATCH):
                settings = Settings()
                pairs = batch[::-1] if rng.random() < 0.1 else None
                check(peer, batch, pairs, settings)
                if rng.random() < 0.1:
                    check(
                        peer,
                        batch,
                        pairs,
                        draw_settings(rng, peer, paired=pairs is not None, short=False),
                    )
                total += len(batch)
        print(f"{path.relative_to(data)}: {len(lines)} lines", flush=True)
    return total


def run_strings(peers: list[Peer], count: int, rng: random.Random) -> int:
    """Compare generated strings, each on every tokenizer."""
    makers = [StringMaker(rng, sorted(peer.ours.spec.model.vocab)) for peer in peers]
    done = 0
    while done < count:
        size = min(256, count - done)
        for peer, maker in zip(peers, makers, strict=True):
            texts = [maker.text() for _ in range(size)]
            pairs = [maker.text() for _ in range(size)] if rng.random() < 0.4 else None
            # A text is many tokens where bytes are.
            short = "bytes" not in peer.name
            settings = draw_settings(rng, peer, paired=pairs is not None, short=short)
            check(peer, texts, pairs, settings)
        done += size
    return done * len(peers)


def run_sentencepiece(
    peers: list[SentencePiecePeer], data: Path | None, count: int, rng: random.Random
) -> int:
    """Compare generated strings and, with a data folder, every line of every file."""
    total = 0
    for peer in peers:
        maker = StringMaker(rng, sorted(peer.ours.spec.model.vocab))
        texts = [maker.text() for _ in range(count)]
        if data is not None:
            texts += [line for path in corpus_files(data) for line in read_lines(path)]
        for batch in batches(texts, BATCH):
            mismatch = peer.compare(batch)
            if mismatch is not None:
                print(mismatch)
                sys.exit(1)
        total += len(texts)
        print(f"{peer.name}: {len(texts)} texts", flush=True)
    return total


def run_options(strings: int, seed: int, folder: Path) -> None:
    """Compare drawn files, and stop at the first mismatch."""
    counts, faults = compare_options(strings, seed, folder)
    for fault in faults:
        print(fault)
    shown = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    print(f"{shown}: {len(faults)} mismatches", flush=True)
    if faults:
        sys.exit(1)


def check(peer: Peer, texts: list[str], pairs: list[str] | None, settings: Settings) -> None:
    """Stop at the first mismatch."""
    mismatch = peer.compare(texts, pairs, settings)
    if mismatch is not None:
        print(mismatch)
        sys.exit(1)


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ("wordpiece", "unigram", "sentencepiece")
    parser.add_argument("--model", choices=kinds, default="wordpiece", help="what is compared")
    parser.add_argument("--strings", type=int, default=200_000, help="strings per tokenizer")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--corpora", action="store_true", help="also every line of the corpora")
    parser.add_argument("--options", action="store_true", help="drawn files instead of a model's")
    parser.add_argument("--variants", action="store_true", help="also with other options")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        if options.options:
            run_options(options.strings, seed, Path(name))
            print(f"{time.perf_counter() - start:.0f} s", flush=True)
            return
        if options.model == "sentencepiece":
            models = sentencepiece_peers(options.data, Path(name), more=options.variants)
            data = options.data if options.corpora else None
            total = run_sentencepiece(models, data, options.strings, rng)
            print(f"{total} texts: 0 mismatches, {time.perf_counter() - start:.0f} s", flush=True)
            return
        make = unigram_peers if options.model == "unigram" else wordpiece_peers
        peers = make(options.data, Path(name), more=options.variants)
        if options.strings:
            total = run_strings(peers, options.strings, rng)
            print(f"{total} strings: 0 mismatches, {time.perf_counter() - start:.0f} s", flush=True)
        if options.corpora:
            published = peers[: 2 if options.model == "unigram" else len(NAMES)]
            total = run_corpora(published, options.data, rng)
            print(f"{total} lines: 0 mismatches, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
