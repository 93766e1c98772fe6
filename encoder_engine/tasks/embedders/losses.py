"""Computes an embedder's loss, by its name, from the vectors of all texts of a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine.objectives.vectors.in_batch import (
    Direction,
    GuideFilter,
    TextIds,
    in_batch_negatives,
)
from encoder_engine.objectives.vectors.lists import divergence, margin_error
from encoder_engine.objectives.vectors.pairs import cosent, cosine_error, triplet
from encoder_engine.objectives.vectors.teachers import vector_error
from encoder_engine.tasks.embedders.examples import NUM_NEGATIVES, NUM_POSITIVES
from encoder_engine.tasks.embedders.layout import StepLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.tasks.embedders.settings import EmbeddingSettings

__all__ = ["count_terms", "list_loss", "step_loss", "text_ids_of"]

SYMMETRIC: tuple[Direction, ...] = ("query_to_document", "document_to_query")


def count_terms(loss: str, targets: Mapping[str, Tensor]) -> int:
    """Return how many terms a loss sums over a micro-batch or a step; its mean divides by this."""
    if loss == "in_batch":
        return int(targets[NUM_POSITIVES].sum())
    if loss in ("triplet", "margin"):
        return int(targets[NUM_NEGATIVES].sum())
    return len(targets[NUM_POSITIVES])


def step_loss(
    task: EmbeddingSettings,
    vectors_SD: Tensor,
    targets: Mapping[str, Tensor],
    share: tuple[int, int],
) -> Tensor:
    """Return this process's part of the loss ``task.loss`` of a step, summed over its terms.

    ``vectors_SD``: the vectors of all texts of the step, over all processes.
    ``share``: (rank, number of ranks). The ranks divide the terms of ``in_batch``; rank 0 alone
    computes the other losses, and other ranks return 0.
    """
    layout = StepLayout.of(targets)
    if task.loss == "in_batch":
        return _in_batch(task, vectors_SD, targets, layout, share)
    if share[0] != 0:
        # The other losses take no time worth sharing: the first rank computes them.
        return vectors_SD.new_zeros(())
    if task.loss == "vectors":
        teacher = targets["vector"].to(vectors_SD.dtype)[:, : vectors_SD.shape[1]]
        return vector_error(vectors_SD[layout.queries_I], teacher, metric=task.vector_metric)
    return _of_documents(task, vectors_SD, targets, layout)


def _in_batch(
    task: EmbeddingSettings,
    vectors_SD: Tensor,
    targets: Mapping[str, Tensor],
    layout: StepLayout,
    share: tuple[int, int],
) -> Tensor:
    guide_SG = targets.get("guide")
    documents_C = layout.documents
    guide = None
    if guide_SG is not None:
        guide = GuideFilter(
            queries_BD=guide_SG[layout.queries_B],
            documents_CD=guide_SG[documents_C],
            margin=task.guide_margin,
        )
    return in_batch_negatives(
        vectors_SD[layout.queries_B],
        vectors_SD[documents_C],
        owners_C=layout.owners,
        scale=task.scale,
        normalized=task.similarity == "cosine",
        directions=SYMMETRIC if task.symmetric else SYMMETRIC[:1],
        joint=not task.symmetric,
        ids=text_ids_of(targets, layout),
        guide=guide,
        share=share,
    )


def text_ids_of(targets: Mapping[str, Tensor], layout: StepLayout) -> TextIds:
    """Return ids of a step's queries and documents, which are equal for equal texts."""
    ids_S = targets["text_ids"]
    return TextIds(queries_B=ids_S[layout.queries_B], documents_C=ids_S[layout.documents])


def _of_documents(
    task: EmbeddingSettings, vectors_SD: Tensor, targets: Mapping[str, Tensor], layout: StepLayout
) -> Tensor:
    """Return the loss ``task.loss``, if it compares each query with its own documents only."""
    queries_B, positives_B = vectors_SD[layout.queries_B], vectors_SD[layout.positives_B]
    if task.loss == "triplet":
        own_N = vectors_SD[layout.positives_B[layout.owners_N]]
        queries_N = vectors_SD[layout.queries_I[layout.items_N]]
        negatives_N = vectors_SD[layout.negatives_N]
        return triplet(*(queries_N, own_N, negatives_N), distance=task.distance, margin=task.margin)
    if task.loss in ("cosent", "cosine"):
        scores_B = targets["scores"].to(vectors_SD.dtype)
        if task.loss == "cosine":
            return cosine_error(queries_B, positives_B, scores_B)
        return cosent(queries_B, positives_B, scores_B, scale=task.scale)
    places_C, lists_C = layout.by_item()
    scores_C = (vectors_SD[layout.queries_I[lists_C]] * vectors_SD[places_C]).sum(1)
    return list_loss(task.loss, scores_C, targets, layout, temperature=task.temperature)


def list_loss(
    loss: str | None,
    scores_C: Tensor,
    targets: Mapping[str, Tensor],
    layout: StepLayout,
    *,
    temperature: float,
) -> Tensor:
    """Return the loss ``divergence`` or ``margin`` of the scores of all documents, [C].

    Scores, and the teacher's scores in ``targets``, are in order of items (queries): an item's
    positives, then its negatives.
    """
    _, lists_C = layout.by_item()
    teacher_C = targets["scores"].to(scores_C.dtype)
    if loss == "divergence":
        return divergence(scores_C, teacher_C, lists_C, layout.num_items, temperature=temperature)
    # Every item has one positive, its first document.
    firsts = layout.positives_B - layout.queries_I - 1
    sizes = torch.bincount(lists_C, minlength=layout.num_items)
    return margin_error(scores_C, teacher_C, lists_C, sizes.cumsum(0) - sizes + firsts)[0]
