"""Near duplicates of a corpus with planted copies, beside datasketch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measuring.case import Case, CaseSpec, Options, Verdict, ours
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import candidate
from benchmarks.peers import datasketch as peer
from benchmarks.texts import corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measuring.case import Call

SEED = 0
THRESHOLD, SHINGLE = 0.8, 5
# Words of a passage; texts of the case, every fourth of which is a copy of an earlier one.
LENGTHS = (60, 200)
NUM_TEXTS, NUM_SMOKE = 4000, 80
# Words that a copy has changed: it stays above the threshold with none or one, and falls below with
# more.
EDITS = (0, 1, 2, 8, 30)
# Of the duplicates, what counts as the same work.
LEAST_RECALL = 0.9


def case_specs() -> list[CaseSpec]:
    """Return the case."""
    return [
        CaseSpec(
            name="hygiene/near-duplicates",
            summary=f"{NUM_TEXTS:,} passages, a quarter of them edited copies",
            make=make_case,
        )
    ]


@dataclass(frozen=True, kw_only=True)
class RecallGate:
    """Compare what is called near with a double loop over the shingles of all texts."""

    truth: Sequence[bool]

    def __call__(self, output: Any) -> Verdict:
        found, truth = np.asarray(output, bool), np.asarray(self.truth)
        if found.shape != truth.shape:
            return Verdict(passed=False, reason=f"shape {found.shape}, expected {truth.shape}")
        right = float((found & truth).sum())
        recall, precision = right / truth.sum(), right / max(found.sum(), 1)
        figures = {"recall": float(recall), "precision": float(precision)}
        reason = None if recall >= LEAST_RECALL else f"finds {recall:.3f} of the duplicates"
        return Verdict(passed=reason is None, figures=figures, reason=reason)


def make_case(options: Options) -> Case:
    """Cut passages, plant copies, and compare all pairs."""
    texts = planted_texts(NUM_SMOKE if options.smoke else NUM_TEXTS)
    return Case(
        candidates=(
            ours(partial(build_ours, texts)),
            candidate(peer.PEER, partial(peer.build, texts, THRESHOLD, SHINGLE), keep_slow=True),
        ),
        gate=RecallGate(truth=by_all_pairs(texts)),
        fingerprint=corpus.fingerprint(texts),
        seed=SEED,
        amounts={"documents": len(texts)},
        isolated=True,
        rounds=MIN_ROUNDS,
    )


def build_ours(texts: Sequence[str]) -> Call:
    """Return a call that says of each text whether it is near a kept one."""
    from encoder_engine.data.hygiene.minhash import NearDuplicates

    every = list(texts)

    def find() -> list[bool]:
        index = NearDuplicates(THRESHOLD, size=SHINGLE)
        windows = (every[n : n + 2048] for n in range(0, len(every), 2048))
        return [place is not None for window in windows for place in index.add(window)]

    return find


def planted_texts(count: int) -> list[str]:
    """Cut passages of running text; every fourth copies an earlier one and changes some words."""
    generator = np.random.default_rng(SEED)
    documents = corpus.read_documents("bundled")
    order = generator.permutation(len(documents)).tolist()
    words = [word for n in order for word in documents[n].split()]
    texts: list[list[str]] = []
    place = 0
    for number in range(count):
        if number % 4 == 3:
            passage = list(texts[int(generator.integers(len(texts)))])
            for _ in range(int(generator.choice(EDITS))):
                passage[int(generator.integers(len(passage)))] = words[
                    int(generator.integers(len(words)))
                ]
        else:
            length = int(generator.integers(*LENGTHS))
            # The text starts anew where it is used up, one word later.
            passage = [words[(place + n) % len(words)] for n in range(length)]
            place = place + length + (place + length >= len(words))
        texts.append(passage)
    return [" ".join(passage) for passage in texts]


def by_all_pairs(texts: Sequence[str]) -> list[bool]:
    """Compare each text with every kept one that shares a shingle with it, exactly."""
    from encoder_engine.data.hygiene.shingles import Shingles

    shingles = Shingles(SHINGLE)
    kept: list[int] = []
    holders: dict[int, list[int]] = {}
    found = []
    for text in texts:
        mine = shingles.of(text).tolist()
        shared: dict[int, int] = {}
        for shingle in mine:
            for other in holders.get(shingle, ()):
                shared[other] = shared.get(other, 0) + 1
        near = any(
            number >= THRESHOLD * (len(mine) + kept[other] - number)
            for other, number in shared.items()
        )
        found.append(near)
        if not near:
            for shingle in mine:
                holders.setdefault(shingle, []).append(len(kept))
            kept.append(len(mine))
    return found
