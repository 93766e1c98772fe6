"""Section on the share of padding in padded batches of the embedding cases' texts.

That is a fact about lengths, not a measurement: it is counted from the texts whenever the report
is written.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cases.embedding import MAX_LENGTHS, make_texts, minilm_directory, why_not
from benchmarks.records.words import SHAPES
from benchmarks.report.page import Picture, Section, Table
from benchmarks.report.pictures import Bars, draw_bars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.report.pictures import Kind

BATCH_SIZES = (8, 32, 128)
TITLE = "What padding costs"


def padding_share(lengths: Sequence[int], batch_size: int) -> float:
    """Return which share of all tokens in padded batches is padding, in the order given."""
    if not lengths:
        return 0.0
    batches = [lengths[i : i + batch_size] for i in range(0, len(lengths), batch_size)]
    return 1 - sum(lengths) / sum(len(batch) * max(batch) for batch in batches)


@functools.cache
def text_lengths(shape: str, *, smoke: bool = False) -> tuple[int, ...]:
    """Count the tokens of each text of a distribution."""
    from encoder_engine.text import Tokenizer

    tokenizer = Tokenizer.from_pretrained(minilm_directory())

    def count(texts: Sequence[str], *, special: bool) -> list[int]:
        encoded = tokenizer.encode_batch(
            texts, add_special_tokens=special, max_length=MAX_LENGTHS[shape]
        )
        return [int(n) for n in np.diff(encoded.cu_seqlens)]

    texts = make_texts(shape, "bundled", partial(count, special=False), smoke=smoke)
    return tuple(count(texts, special=True))


def padding_section() -> Section:
    """Count the padding; without the model's tokenizer, say why it is not counted."""
    reason = why_not("bundled")
    if reason is not None:
        return Section(title=TITLE, reading=f"Not counted here: {reason}.")
    return make_section({shape: text_lengths(shape) for shape in ("short", "skewed", "long")})


def make_section(lengths: Mapping[str, Sequence[int]]) -> Section:
    """Draw each length distribution: texts in their order, and sorted by length."""
    rows = [
        (shape, size, padding_share(found, size), padding_share(sorted(found), size))
        for shape, found in lengths.items()
        for size in BATCH_SIZES
    ]
    worst = max(rows, key=lambda row: row[2])
    reading = (
        "Most tools fill short texts of a batch up to the longest and compute the filling too: up "
        f"to {worst[2]:.0%} of the work ({SHAPES[worst[0]]}, batches of {worst[1]}), and "
        f"{max(row[3] for row in rows):.0%} at most where texts are sorted by length first. "
        "encoder-engine packs texts end to end and computes none."
    )
    labels: list[str] = []
    for shape in lengths:
        sizes = [f"batches of {size}" for size in BATCH_SIZES]
        labels += [f"{SHAPES[shape]}\n{sizes[0]}", *sizes[1:], "packed by encoder-engine"]
    values = {
        "as texts come": _with_packed([row[2] for row in rows]),
        "sorted by length": _with_packed([row[3] for row in rows]),
    }
    panels = [
        Bars(
            axis=f"padding, {order} (%)",
            values=[100 * share for share in shares],
            texts=[f"{share:.0%}" for share in shares],
        )
        for order, shares in values.items()
    ]
    padded: list[Kind] = ["peer"] * len(BATCH_SIZES)
    kinds: list[Kind] = [*padded, "ours"] * len(lengths)
    picture = Picture(
        name="padding",
        main=True,
        caption="Share of a padded batch that is padding",
        draw=partial(draw_bars, labels, kinds, panels),
        table=Table(
            header=["texts", "batch size", "as texts come", "sorted by length", "packed"],
            rows=[
                [SHAPES[shape], str(size), f"{given:.1%}", f"{by_length:.1%}", "0 %"]
                for shape, size, given, by_length in rows
            ],
        ),
    )
    return Section(title=TITLE, reading=reading, blocks=[picture])


def _with_packed(shares: Sequence[float]) -> list[float]:
    """Add a bar of zero, for packed batches, to each distribution."""
    step = len(BATCH_SIZES)
    return [share for i in range(0, len(shares), step) for share in (*shares[i : i + step], 0.0)]
