"""Section on the parts of a call's time, compared with the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records.profiles import OTHERS, PARTS, PRODUCTS, TOKENIZATION
from benchmarks.records.words import case_words, number
from benchmarks.report.page import Section, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.profiles import Profile
    from benchmarks.report.page import Block

_PARTS = tuple(dict.fromkeys((*PARTS.values(), OTHERS, TOKENIZATION)))
HEADER = (
    "texts to vectors",
    "seconds",
    "watched",
    f"{PRODUCTS} at the limit",
    f"{PRODUCTS} beyond it",
    *(part for part in _PARTS if part != PRODUCTS),
    "the rest",
    "measured",
)


def profile_section(profiles: Sequence[Profile]) -> Section:
    """Split each call's time into the least that the roofline permits, and the rest."""
    reading = (
        "Each line is one call of encoder-engine, and its parts as shares of its time, with GELU "
        "in the products that end in it. What the products take beyond the limit, the fastest that "
        "this machine was seen to multiply before and after, and all the other parts, are what "
        "keeps the call from it; products may also turn out faster than that (below 0 %)."
    )
    blocks: list[Block] = []
    for device in dict.fromkeys(profile.device for profile in profiles):
        rows = [row(profile) for profile in profiles if profile.device == device]
        blocks += [Text(words=f"On `{device}`:"), Table(header=HEADER, rows=rows)]
    return Section(title="Where the time goes", reading=reading, blocks=blocks)


def row(profile: Profile) -> list[str]:
    """Return the table row of one profile."""
    taken = {**dict.fromkeys(_PARTS, 0.0), **profile.parts}
    shares = [profile.floor, taken.pop(PRODUCTS) - profile.floor, *taken.values(), profile.rest]
    changed = ", changed" if profile.dirty else ""
    return [
        f"{case_words(profile.case)}, {profile.threads} threads",
        number(profile.seconds),
        f"{profile.watched / profile.seconds:.2f}x",
        *(f"{share / profile.watched:.0%}" for share in shares),
        f"{profile.time_utc[:10]}, {profile.commit}{changed}",
    ]
