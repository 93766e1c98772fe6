"""The span head equals a double loop over first and last words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from encoder_engine.errors import InputError, ShapeError
from encoder_engine.models.span_head import SpanHead, SpanSummary, list_spans
from encoder_engine.packing import Sequences

LENGTHS = [[1], [6], [3, 0, 7, 1], []]


def make(summary: SpanSummary, max_width: int) -> SpanHead:
    torch.manual_seed(5)
    head = SpanHead(8, 4, max_width=max_width, summary=summary, hidden=6).double().eval()
    with torch.no_grad():
        for weight in head.parameters():
            weight.normal_()
    return head


def in_a_double_loop(head: SpanHead, hidden: Tensor, lengths: list[int]) -> Tensor:
    """Build each span's vector, and apply one dense layer to the three parts together."""
    weight = torch.cat([head.of_start.weight, head.of_end.weight, head.of_summary.weight], dim=1)
    found: dict[tuple[int, int], Tensor] = {}
    first = 0
    for length in lengths:
        for start in range(first, first + length):
            for stop in range(start + 1, min(start + head.max_width, first + length) + 1):
                inside = hidden[start:stop]
                shares = torch.ones(stop - start, 1).double() / (stop - start)
                if head.attention is not None:
                    shares = head.attention(inside).softmax(0)
                # By PyTorch: the head's own layers take rows.
                parts = (head.start, hidden[start]), (head.end, hidden[stop - 1])
                ends = [F.gelu(F.linear(row, one.weight, one.bias)) for one, row in parts]
                whole = torch.cat([*ends, (shares * inside).sum(0)])
                raised = F.gelu(F.linear(whole, weight, head.of_start.bias))
                found[stop - start, start] = F.linear(raised, head.output.weight, head.output.bias)
        first += length
    ordered = [found[key] for key in sorted(found)]
    return torch.stack(ordered) if ordered else hidden.new_zeros(0, 4)


@pytest.mark.parametrize("max_width", [1, 3, 20])
@pytest.mark.parametrize("summary", ["mean", "attention"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_logits_and_gradients_are_those_of_a_double_loop(
    lengths: list[int], summary: SpanSummary, max_width: int
) -> None:
    head = make(summary, max_width)
    hidden = torch.randn(sum(lengths), 8, dtype=torch.float64, requires_grad=True)
    found = head(hidden, Sequences.from_lengths(lengths))
    expected = in_a_double_loop(head, hidden, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if len(found):
        inputs = [hidden, *head.parameters()]
        drawn = torch.randn_like(found)
        ours = torch.autograd.grad((found * drawn).sum(), inputs, materialize_grads=True)
        truth = torch.autograd.grad((expected * drawn).sum(), inputs, materialize_grads=True)
        for mine, theirs in zip(ours, truth, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)


def test_spans_are_listed_by_width_and_found_again() -> None:
    spans = list_spans(np.array([0, 3, 3, 5], np.int32), 2)
    listed = list(zip(*(part.tolist() for part in spans), strict=True))
    assert listed == [
        *((0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 2), (4, 5, 2)),
        *((0, 2, 0), (1, 3, 0), (3, 5, 2)),
    ]
    assert spans.find(spans.starts, spans.stops).tolist() == list(range(8))
    # Across sequences, too wide, and beyond all: not in the list.
    assert spans.find(np.array([2, 0, 4]), np.array([4, 3, 6])).tolist() == [-1, -1, -1]


def test_every_span_of_a_text_is_there() -> None:
    spans = list_spans(np.array([0, 30]), 30)
    assert len(spans.starts) == 30 * 31 // 2
    assert len(list_spans(np.array([0]), 3).starts) == 0


def test_great_attention_scores_do_not_overflow() -> None:
    head = make("attention", 4).float()
    assert head.attention is not None
    with torch.no_grad():
        head.attention.weight.mul_(1e4)
    hidden = torch.randn(6, 8, requires_grad=True)
    logits = head(hidden, Sequences.from_lengths([6]))
    torch.autograd.backward(logits.sum())
    assert logits.isfinite().all()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_no_tensor_has_a_row_of_each_word_of_each_span() -> None:
    shapes: list[tuple[int, ...]] = []

    class Shapes(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                shapes.append(tuple(result.shape))
            return result

    head = make("attention", 8)
    with Shapes():
        head(torch.randn(40, 8).double(), Sequences.from_lengths([40]))
    widest = max(int(np.prod(shape)) for shape in shapes)
    # [S, C] is 292 x 4; a tensor [S, L, D] would have 18,688 elements.
    assert widest <= 292 * 4


def test_impossible_settings_and_other_rows_are_refused() -> None:
    with pytest.raises(InputError, match="max_width is 0"):
        SpanHead(8, 3, max_width=0)
    with pytest.raises(InputError, match="summary is 'max'"):
        SpanHead(8, 3, max_width=2, summary="max")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="there are 2 word rows, the sequences have 3"):
        make("mean", 2)(torch.zeros(2, 8).double(), Sequences.from_lengths([3]))
