"""The section of what a call's time is made of, beside what the machine's limit allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.profiles import ATTENTION, PARTS, PRODUCTS, TOKENIZATION
from benchmarks.report.page import Section, Table, Text
from benchmarks.report.words import case_words, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.profiles import Profile

_OTHERS = [
    part
    for part in dict.fromkeys((*PARTS.values(), TOKENIZATION))
    if part not in {PRODUCTS, ATTENTION}
]
HEADER = (
    "texts to vectors",
    "threads",
    "seconds",
    "at the limit",
    f"{PRODUCTS} beyond it",
    f"{ATTENTION} beyond it",
    *_OTHERS,
    "the rest",
    "products at",
)


def profile_section(profiles: Sequence[Profile]) -> Section:
    """Split each call's time into what the limit asks for, and what comes on top of it."""
    reading = (
        "Each line is one call of encoder-engine, its parts as shares of its time. The first is "
        "what all matrix products would take as fast as this machine multiplies; the others are "
        "what keeps the call from that."
    )
    devices = dict.fromkeys(profile.device for profile in profiles)
    blocks: list[Text | Table] = []
    for device in devices:
        rows = [row(profile) for profile in profiles if profile.device == device]
        blocks += [Text(words=f"On `{device}`:"), Table(header=HEADER, rows=rows)]
    return Section(title="Where the time goes", reading=reading, blocks=blocks)


def row(profile: Profile) -> list[str]:
    """Tell one profile."""
    return [
        case_words(profile.case),
        str(profile.threads),
        number(profile.seconds),
        *(f"{share / profile.seconds:.0%}" for share in _shares(profile)),
        f"{profile.floors[PRODUCTS] / profile.parts[PRODUCTS]:.0%} of the limit",
    ]


def _shares(profile: Profile) -> Iterator[float]:
    yield sum(profile.floors.values())
    for part in (PRODUCTS, ATTENTION):
        yield profile.parts[part] - profile.floors[part]
    for part in _OTHERS:
        yield profile.parts.get(part, 0.0)
    yield profile.rest
