"""Cases of the masked-token loss, drawn from seeds, and the plain PyTorch they are held against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from tests.ops.cases import rows as draw_rows
from tests.ops.compare import Function, compare

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class MaskedCase:
    """Sizes and options of one call."""

    num_tokens: int
    num_rows: int
    width: int
    vocab_size: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    has_bias: bool = True
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    ignored_share: float = 0.2
    reduction: ops.Reduction = "mean"
    seed: int = 0

    def inputs(self) -> dict[str, Tensor]:
        """Draw hidden rows, weight and bias."""
        draw = partial(draw_rows, dtype=self.dtype, device=self.device)
        drawn = {
            "hidden": draw(self.num_tokens, self.width, seed=self.seed),
            "weight": draw(self.vocab_size, self.width, seed=self.seed + 1) * self.width**-0.5,
        }
        if self.has_bias:
            drawn["bias"] = draw(self.vocab_size, seed=self.seed + 2)
        return drawn

    def targets(self) -> tuple[Tensor, Tensor]:
        """Draw rows (some may come twice) and labels, at least one of them not ignored."""
        generator = np.random.default_rng(self.seed)
        rows = generator.integers(0, self.num_tokens, size=self.num_rows)
        labels = generator.integers(0, self.vocab_size, size=self.num_rows)
        labels[1:][generator.random(max(self.num_rows - 1, 0)) < self.ignored_share] = -100
        return torch.from_numpy(rows).to(self.device), torch.from_numpy(labels).to(self.device)


def draw_case(seed: int, *, dtypes: list[torch.dtype], most: int, device: str) -> MaskedCase:
    """Draw a case with at most ``most`` rows, features and, tenfold, tokens of the vocabulary."""
    generator = np.random.default_rng(seed)
    num_rows = int(generator.integers(0, most + 1))
    reductions: list[ops.Reduction] = ["sum", "none"] if num_rows == 0 else ["mean", "sum", "none"]
    return MaskedCase(
        num_tokens=int(generator.integers(1, 3 * most)),
        num_rows=num_rows,
        width=int(generator.integers(1, most + 1)),
        vocab_size=int(generator.integers(1, 10 * most)),
        dtype=dtypes[int(generator.integers(len(dtypes)))],
        device=device,
        has_bias=bool(generator.integers(2)),
        label_smoothing=float(generator.choice([0.0, 0.0, 0.1, 1.0])),
        z_loss=float(generator.choice([0.0, 0.0, 1e-4, 0.1])),
        ignored_share=float(generator.choice([0.0, 0.2, 0.9])),
        reduction=reductions[int(generator.integers(len(reductions)))],
        seed=seed,
    )


def eager(
    case: MaskedCase, hidden: Tensor, weight: Tensor, bias: Tensor | None = None, mask: int = -100
) -> Tensor:
    """Gather, project, and call torch's cross-entropy in float32 or wider."""
    rows, labels = case.targets()
    logits = F.linear(hidden[rows], weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(
        logits,
        labels,
        ignore_index=mask,
        label_smoothing=case.label_smoothing,
        reduction=case.reduction,
    )
    squares = torch.logsumexp(logits, dim=1).square().masked_fill(labels == mask, 0.0)
    if case.reduction == "none":
        return loss + case.z_loss * squares
    divisor = (labels != mask).sum() if case.reduction == "mean" else 1
    return loss + case.z_loss * squares.sum() / divisor


def ours(
    case: MaskedCase,
    by: str,
    mode: ops.ProjectionMode,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Call the operation."""
    rows, labels = case.targets()
    return ops.masked_cross_entropy(
        hidden,
        rows,
        labels,
        weight,
        bias,
        label_smoothing=case.label_smoothing,
        z_loss=case.z_loss,
        reduction=case.reduction,
        mode=mode,
        implementation=by,
    )


def hold_to_budget(case: MaskedCase, by: str, mode: ops.ProjectionMode) -> None:
    """Hold the loss and every gradient to the budget.

    A loss in float32 of half-precision logits is as exact as they are: it is judged in their type.
    """

    def judged(function: Function, **given: Tensor) -> Tensor:
        return function(**given).to(given["hidden"].dtype)

    compare(
        partial(judged, partial(ours, case, by, mode)),
        partial(judged, partial(eager, case)),
        partial(judged, partial(ours, case, "reference", mode)),
        case.inputs(),
        terms=case.width + case.vocab_size + case.num_rows,
    )
