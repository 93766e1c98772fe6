"""In-batch negatives (Henderson et al. 2017): every other text of the step is a negative.

B rows, each a query and its positive document; C documents: the positives, then hard negatives; D
features.

How it works: the loss of row i is ``logsumexp(scale * similarities_i) - scale * similarity(q_i,
p_i)``. Similarities are computed in tiles of rows and never stored. A candidate (a text that the
row is compared with) that is known to be relevant, or that a guide model ranks above the positive
(GIST, Solatorio 2024), is left out of the denominator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, UnknownNameError
from encoder_engine.objectives.vectors.tiles import row_tiles, tiled_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DIRECTIONS",
    "Candidates",
    "Direction",
    "GuideFilter",
    "TextIds",
    "in_batch_negatives",
]

Direction = Literal[
    "query_to_document", "document_to_query", "query_to_query", "document_to_document"
]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


@dataclass(frozen=True, kw_only=True, eq=False)
class TextIds:
    """Ids of a step's texts, equal for equal texts: int64 [B] of queries, [C] of documents."""

    queries_B: Tensor
    documents_C: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class GuideFilter:
    """A step's vectors by a guide model, by which false negatives are recognised.

    ``margin``: a candidate is left out of the denominator if the guide's cosine for it exceeds the
    positive's cosine minus ``margin``; with ``relative``, minus this share of the cosine's
    magnitude.
    """

    queries_BD: Tensor
    documents_CD: Tensor
    margin: float = 0.0
    relative: bool = False

    def thresholds(self) -> Tensor:
        """Return the guide's cosine above which a candidate of a row is left out, [B]."""
        queries = F.normalize(self.queries_BD, dim=1)
        positives = F.normalize(self.documents_CD[: len(queries)], dim=1)
        cosines = (queries * positives).sum(1)
        return cosines - self.margin * (cosines.abs() if self.relative else 1.0)


def in_batch_negatives(
    queries_BD: Tensor,
    documents_CD: Tensor,
    *,
    owners_C: Tensor | None = None,
    scale: float = 20.0,
    normalized: bool = True,
    directions: Sequence[Direction] = ("query_to_document",),
    joint: bool = True,
    ids: TextIds | None = None,
    guide: GuideFilter | None = None,
    share: tuple[int, int] = (0, 1),
) -> Tensor:
    """Return the loss summed over the rows: ``F.cross_entropy(scale * cosines, arange(B))``.

    ``documents_CD``: the positives in the order of the queries, then negatives of any rows.
    ``owners_C``: the row that a document belongs to, int64; None: the rows in turn.
    ``scale``: the factor of similarities; ``normalized``: similarities are cosines, else inner
    products.
    ``directions``: the texts that each row is compared with; if several: ``joint`` uses one
    denominator for all, else the mean of their losses is taken.
    ``ids``: leave known pairs out of the denominator: documents equal to the row's query or
    positive, and positives of an equal query.
    ``guide``: filters false negatives.
    ``share``: (rank, number of ranks): compute only this rank's tiles; the sum over ranks is the
    loss.

    Raises :class:`UnknownNameError` for another direction, and :class:`InputError` for too few
    documents, and for directions without ``query_to_document`` or that need ``joint``.
    """
    num_rows = len(queries_BD)
    if len(documents_CD) < num_rows:
        raise InputError(
            f"{num_rows} queries need as many positives, there are {len(documents_CD)} documents"
        )
    _check_directions(directions, joint=joint)
    if normalized:
        queries_BD, documents_CD = F.normalize(queries_BD, dim=1), F.normalize(documents_CD, dim=1)
    if owners_C is None:
        owners_C = torch.arange(len(documents_CD), device=queries_BD.device) % max(num_rows, 1)
    blocks = Candidates(owners_C=owners_C, num_rows=num_rows, ids=ids, guide=guide)

    def tile_loss(tile: slice, rows: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
        (query_RD, positive_RD), (all_queries, all_documents) = rows, whole
        positives_R = scale * (query_RD * positive_RD).sum(1)
        parts = []
        for direction in directions:
            side, candidate = direction.split("_to_")
            left = query_RD if side == "query" else positive_RD
            right = all_queries if candidate == "query" else all_documents
            left_out = blocks.left_out(direction, tile)
            parts.append((scale * (left @ right.T)).masked_fill(left_out, -torch.inf))
        if joint:
            return (torch.cat(parts, 1).logsumexp(1) - positives_R).sum()
        sums = torch.stack([part.logsumexp(1) for part in parts])
        return (sums.mean(0) - positives_R).sum()

    columns = sum(num_rows if d.endswith("query") else len(documents_CD) for d in directions)
    return tiled_sum(
        tile_loss,
        row_tiles(num_rows, columns, first=share[0], step=share[1]),
        by_row=(queries_BD, documents_CD[:num_rows]),
        whole=(queries_BD, documents_CD),
    )


def _check_directions(directions: Sequence[Direction], *, joint: bool) -> None:
    for direction in directions:
        if direction not in DIRECTIONS:
            raise UnknownNameError(f"no direction {direction!r}; there are {', '.join(DIRECTIONS)}")
    if "query_to_document" not in directions:
        raise InputError("directions must hold query_to_document, which has the positives")
    if not joint and {"query_to_query", "document_to_document"} & set(directions):
        raise InputError(
            "query_to_query and document_to_document hold no positive: they need joint=True"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The texts that each row (query) is compared with, and which of them denominators leave out.

    Fields: see :func:`in_batch_negatives`; ``num_rows``: B.
    """

    owners_C: Tensor
    num_rows: int
    ids: TextIds | None = None
    guide: GuideFilter | None = None

    def left_out(self, direction: Direction, tile: slice) -> Tensor:
        """Mark the candidates that each row of a tile leaves out of its denominator.

        bool [rows of the tile, candidates].
        """
        side, candidate = direction.split("_to_")
        device = self.owners_C.device
        rows_R = torch.arange(self.num_rows, device=device)[tile, None]
        owners = (
            self.owners_C if candidate == "document" else torch.arange(self.num_rows, device=device)
        )
        own = owners[None, :] == rows_R
        same_side = side == candidate
        found = own if same_side else torch.zeros_like(own)
        if self.ids is not None:
            found = found | self._known(self.ids, candidate, tile)
        if self.guide is not None:
            found = found | self._guided(self.guide, side, candidate, tile)
        if same_side:
            return found
        # The positive pair of a row always stays: the first num_rows candidates are in its order.
        columns = torch.arange(len(owners), device=device)
        return found & (columns[None, :] != rows_R)

    def _known(self, ids: TextIds, candidate: str, tile: slice) -> Tensor:
        """Mark candidates that their ids exclude as negatives, bool [rows of the tile, candidates].

        Excluded documents equal the row's positive or query, or are the positive of an equal query;
        excluded queries equal the row's query, or their positive equals the row's.
        """
        queries_B, positives_B = ids.queries_B, ids.documents_C[: self.num_rows]
        query_R, positive_R = queries_B[tile, None], positives_B[tile, None]
        if candidate == "query":
            return (queries_B == query_R) | (positives_B == positive_R)
        equal = (ids.documents_C == positive_R) | (ids.documents_C == query_R)
        equal[:, : self.num_rows] |= queries_B == query_R
        return equal

    def _guided(self, guide: GuideFilter, side: str, candidate: str, tile: slice) -> Tensor:
        """Mark candidates whose cosine by the guide exceeds the row's threshold."""
        positives_BD = guide.documents_CD[: self.num_rows]
        left = guide.queries_BD if side == "query" else positives_BD
        right = guide.queries_BD if candidate == "query" else guide.documents_CD
        cosines = F.normalize(left[tile], dim=1) @ F.normalize(right, dim=1).T
        return cosines > guide.thresholds()[tile, None]
