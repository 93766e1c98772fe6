"""The HTML page of word senses: scores, and maps of each lemma's words coloured by sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.pages.drawings import draw_points
from encoder_engine.pages.report import Drawing, Table
from encoder_engine.vectors.similarity import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.context_pairs import PairScores
    from encoder_engine.analysis.senses import SenseScores, SenseWord
    from encoder_engine.analysis.static_words import StaticWords

__all__ = ["neighbour_table", "pair_table", "sense_map", "sense_table"]

# Words of the context that a point's title shows, on either side.
SHOWN = 8
# Test words in the table of neighbours.
LISTED = 12


def sense_table(scores: Mapping[str, SenseScores], *, with_zscore: bool) -> Table:
    """Return the scores of word senses as a table, with a row for each set of words."""
    rows = [
        (
            name,
            f"{found.num_covered} of {found.num_words}",
            str(found.num_senses),
            f"{found.most_frequent:.1f}",
            f"{found.neighbour:.1f}",
            f"{found.nearest:.1f}",
        )
        for name, found in scores.items()
    ]
    return Table(
        title="Accuracy, percent of the covered words",
        columns=("words", "covered", "senses", "most frequent", "1-NN", "nearest sense"),
        rows=rows,
        note="Vectors are standardised by a corpus." if with_zscore else "",
    )


def pair_table(scores: Mapping[str, PairScores]) -> Table:
    """Return the scores of words in two contexts as a table, with a row for each set of pairs."""
    return Table(
        title="The same sense in two contexts?",
        columns=("pairs", "tested", "constant answer", "accuracy", "threshold"),
        rows=[
            (
                name,
                str(found.num_pairs),
                f"{found.constant:.1f}",
                f"{found.accuracy:.1f}",
                f"{found.threshold:.3f}",
            )
            for name, found in scores.items()
        ],
        note="The threshold of the cosine was chosen on the other half of the words.",
    )


def sense_map(
    name: str,
    words: Sequence[SenseWord],
    vectors: npt.NDArray[np.float64],
    *,
    kind: str = "",
    most_points: int = 600,
) -> Drawing:
    """Draw words by two principal components, coloured by sense; ``kind``: the title's suffix."""
    words, vectors = words[:most_points], vectors[:most_points]
    centred = vectors - vectors.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    points = left[:, :2] * singular[:2]
    if points.shape[1] < 2:
        points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for word, (x, y) in zip(words, points.tolist(), strict=True):
        groups.setdefault(word.senses[0], []).append((x, y, _context(word)))
    share = float((singular[:2] ** 2).sum() / max(float((singular**2).sum()), 1e-300))
    return Drawing(
        title=f"{name}: test words by sense{kind}",
        svg=draw_points(dict(sorted(groups.items(), key=lambda group: -len(group[1])))),
        note=f"Two principal components, {share:.0%} of the variance. Point at one to read it.",
    )


def neighbour_table(
    name: str,
    words: Sequence[SenseWord],
    vectors: npt.NDArray[np.float64],
    static: StaticWords | None = None,
) -> Table:
    """Return a table of test words, each with the word in context that is nearest to it.

    static: also list the nearest words by static vectors, which are the same in every context.
    """
    unit = unit_vectors(vectors)
    rows: list[tuple[str, ...]] = []
    for number in range(min(LISTED, len(words))):
        cosines = unit @ unit[number]
        cosines[number] = -2.0
        nearest = int(cosines.argmax())
        row: tuple[str, ...] = (
            _context(words[number]),
            _context(words[nearest]),
            f"{cosines[nearest]:.2f}",
        )
        if static is not None:
            word = words[number]
            row = (*row, ", ".join(static.neighbours(word.words[word.place])) or "unknown")
        rows.append(row)
    columns = ("word", "nearest", "cosine")
    return Table(
        title=f"{name}: nearest words in context",
        columns=columns if static is None else (*columns, "static neighbours"),
        rows=rows,
    )


def _context(word: SenseWord) -> str:
    before = word.words[max(0, word.place - SHOWN) : word.place]
    after = word.words[word.place + 1 : word.place + 1 + SHOWN]
    middle = f"[{word.words[word.place]}: {', '.join(word.senses)}]"
    return " ".join([*before, middle, *after])
