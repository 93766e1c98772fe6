"""Fuses the results of several searches by reciprocal rank fusion (Cormack et al. 2009)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.errors import InputError
from encoder_engine.inputs.opening import STANDARD_INPUT
from encoder_engine.vectors.hits import check_num_hits
from encoder_engine.vectors.store_files import row_digests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["DEFAULT_CONSTANT", "check_same_rows", "fuse_ranks"]

# The constant of the paper: rank 1 counts 1/61, rank 100 still 1/160.
DEFAULT_CONSTANT = 60


def fuse_ranks(
    rankings: Sequence[Sequence[Hit]],
    num_hits: int,
    *,
    constant: int = DEFAULT_CONSTANT,
    weights: Sequence[float] | None = None,
) -> list[Hit]:
    """Fuse rankings of one query: return the best rows, scored by their reciprocal ranks.

    A row's score is the sum of ``weight / (constant + rank)`` over the rankings that contain it;
    rank 1 is the best. Equal scores are in the order of their rows. Scores of different rankings
    are not compared, because those of dense and sparse vectors have different scales.

    rankings: hits among the same rows, such as those of a dense and of a sparse store; see
        :func:`check_same_rows`.
    weights: the weight of each ranking; None: 1 for each.

    Raises :class:`InputError` for a constant below 1 and for weights that do not fit.
    """
    check_num_hits(num_hits)
    if constant < 1:
        raise InputError(f"constant must be at least 1, got {constant}")
    counts = [1.0] * len(rankings) if weights is None else list(weights)
    if len(counts) != len(rankings) or any(not 0 <= weight < float("inf") for weight in counts):
        raise InputError(f"weights must be {len(rankings)} finite numbers from 0, got {weights!r}")
    scores: dict[int, float] = defaultdict(float)
    found: dict[int, Hit] = {}
    for weight, ranking in zip(counts, rankings, strict=True):
        for rank, hit in enumerate(ranking, start=1):
            scores[hit.row] += weight / (constant + rank)
            found.setdefault(hit.row, hit)
    best = sorted(scores, key=lambda row: (-scores[row], row))[:num_hits]
    return [replace(found[row], score=scores[row]) for row in best]


def check_same_rows(first: StoredVectors, second: StoredVectors) -> None:
    """Raise :class:`InputError` unless two stores' records show that their rows are the same texts.

    Stores with ids must have the same ids. Without ids, both must be folders. The digests of their
    texts are compared if the shards have the same sizes and the same column, or if a store was
    appended to; else the inputs must have the same names and be no streams, and no row was skipped.
    """
    if first.rows != second.rows:
        raise InputError(
            f"{first.path} has {first.rows} rows, {second.path} has {second.rows}: the rows of "
            "both must be of the same texts; embed the same inputs, with on_error='fail'"
        )
    if first.has_ids and second.has_ids:
        mine, others = first.ids or [], second.ids or []
        for row, (one, other) in enumerate(zip(mine, others, strict=True)):
            if one != other:
                raise InputError(
                    f"row {row} has the id {one!r} in {first.path} and {other!r} in "
                    f"{second.path}: the rows of both must be of the same texts",
                    row=row,
                )
        return
    if first.has_ids != second.has_ids:
        named, unnamed = (first, second) if first.has_ids else (second, first)
        raise InputError(
            f"{named.path} has ids and {unnamed.path} has none: embed both with id_column=, or "
            "both without"
        )
    if not _are_of_equal_rows(first, second):
        raise InputError(
            f"nothing says that the rows of {first.path} and {second.path} are of the same texts: "
            "embed the same inputs into folders, with id_column= where rows have ids"
        )


def _are_of_equal_rows(first: StoredVectors, second: StoredVectors) -> bool:
    """Return whether the manifests of two stores show that their rows are equal.

    Raises :class:`InputError` if they show that the rows differ.
    """
    one, other = first.manifest, second.manifest
    if one is None or other is None:
        return False
    if first.generation > 1 or second.generation > 1:
        digests = [row_digests(store.path, store.manifest) for store in (first, second)]
        return all(mine == others for mine, others in zip(*digests, strict=True))
    shards = [[(s["rows"], s["rows_sha256"]) for s in found["shards"]] for found in (one, other)]
    if shards[0] == shards[1]:
        return True
    counts = [[count for count, _ in records] for records in shards]
    columns = [found["plan"]["options"]["column"] for found in (one, other)]
    if counts[0] == counts[1] and columns[0] == columns[1]:
        raise InputError(
            f"{first.path} and {second.path} were made of different texts: the rows of both must "
            "be of the same texts; embed the same inputs again"
        )
    # With shards of other sizes or another column, the names of the inputs decide; a name of a
    # stream says nothing.
    is_stream = any(n == STANDARD_INPUT or n.startswith("/dev/") for n in one["inputs"])
    skipped = one["skipped_rows"] or other["skipped_rows"]
    return bool(one["inputs"] == other["inputs"] and not is_stream and not skipped)
