"""Losses of lists of scored documents, of any length: listwise, KL, margins, BCE.

N documents of B lists; ``lists_N`` is the index of each document's list, ascending int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "binary_error",
    "divergence",
    "list_log_softmax",
    "listwise",
    "margin_error",
]


def list_log_softmax(scores_N: Tensor, lists_N: Tensor, num_lists: int) -> Tensor:
    """Return the logarithm of the softmax of scores within each list of documents, [N]."""
    shape = (num_lists,)
    highest = scores_N.detach().new_full(shape, -torch.inf)
    highest = highest.scatter_reduce(0, lists_N, scores_N.detach(), "amax")
    shifted_N = scores_N - highest[lists_N]
    sums = shifted_N.new_zeros(shape).index_add(0, lists_N, shifted_N.exp())
    return shifted_N - sums.log()[lists_N]


def listwise(scores_N: Tensor, labels_N: Tensor, lists_N: Tensor, num_lists: int) -> Tensor:
    """Return ListNet's loss (Cao et al. 2007), summed over lists.

    The loss is the cross-entropy between the softmax of the labels and the softmax of the scores.
    """
    wanted_N = list_log_softmax(labels_N, lists_N, num_lists).exp()
    return -(wanted_N * list_log_softmax(scores_N, lists_N, num_lists)).sum()


def divergence(
    scores_N: Tensor,
    teacher_N: Tensor,
    lists_N: Tensor,
    num_lists: int,
    *,
    temperature: float = 1.0,
) -> Tensor:
    """Return ``temperature^2 * KL(teacher || student)`` of each list's softmax, summed over lists.

    ``teacher_N``: a cross-encoder's scores.
    """
    student = list_log_softmax(scores_N / temperature, lists_N, num_lists)
    teacher = list_log_softmax(teacher_N / temperature, lists_N, num_lists)
    return temperature**2 * (teacher.exp() * (teacher - student)).sum()


def margin_error(
    scores_N: Tensor, teacher_N: Tensor, lists_N: Tensor, positives_B: Tensor
) -> tuple[Tensor, int]:
    """Return MarginMSE (Hofstätter et al. 2020), summed over negatives, and the negatives' number.

    The margin of a negative is the score of its list's positive less its own; the squared
    difference from the teacher's margin is summed.
    ``positives_B``: the index of each list's positive among the documents, int64.
    """
    error_N = scores_N - teacher_N
    errors_N = error_N[positives_B][lists_N] - error_N
    return errors_N.square().sum(), len(scores_N) - len(positives_B)


def binary_error(
    logits_N: Tensor, labels_N: Tensor, *, positive_weight: float | None = None
) -> Tensor:
    """Return the binary cross-entropy of logits, summed; labels lie from 0 to 1.

    ``positive_weight``: the weight of the positive part, for rare positives.
    """
    weight = None
    if positive_weight is not None:
        weight = torch.tensor(positive_weight, dtype=logits_N.dtype, device=logits_N.device)
    return F.binary_cross_entropy_with_logits(
        logits_N, labels_N, pos_weight=weight, reduction="sum"
    )
