"""The head that classifies spans of words, without PyTorch; ``models/span_head.py`` explains it.

Dimensions: M packed word rows, S spans, D width of the encoder, H width of the head, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.inference.module_stack import CompiledStack
from encoder_engine.inference.rows import activate_rows
from encoder_engine.packing.module_stack import DenseModule, ModuleStack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array

    Rows = npt.NDArray[np.float32]
    Integers = npt.NDArray[np.int64]

__all__ = ["CompiledSpanHead", "span_head_shapes"]


def span_head_shapes(
    width: int, num_outputs: int, *, hidden: int, summary: str
) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape in a span head, by the names of :class:`SpanHead`'s state dict."""
    shapes: dict[str, tuple[int, ...]] = {
        "start.weight": (hidden, width),
        "start.bias": (hidden,),
        "end.weight": (hidden, width),
        "end.bias": (hidden,),
        "of_start.weight": (hidden, hidden),
        "of_start.bias": (hidden,),
        "of_end.weight": (hidden, hidden),
        "of_summary.weight": (hidden, width),
        "output.weight": (num_outputs, hidden),
        "output.bias": (num_outputs,),
    }
    if summary == "attention":
        shapes |= {"attention.weight": (1, width), "attention.bias": (1,)}
    return shapes


class CompiledSpanHead:
    """Scores spans of 1 to ``max_width`` words, in float32, without PyTorch."""

    def __init__(self, weights: Mapping[str, Array], *, max_width: int) -> None:
        self.max_width = max_width

        def dense(name: str, activation: str = "identity") -> DenseModule:
            bias = weights.get(f"{name}.bias")
            return DenseModule(
                weight_NK=weights[f"{name}.weight"].astype(np.float32),
                bias_N=None if bias is None else bias.astype(np.float32),
                activation="gelu" if activation == "gelu" else "identity",
            )

        def stack(*modules: DenseModule) -> CompiledStack:
            return CompiledStack(ModuleStack(modules))

        self._start = stack(dense("start", "gelu"), dense("of_start"))
        self._end = stack(dense("end", "gelu"), dense("of_end"))
        self._summary, self._output = stack(dense("of_summary")), stack(dense("output"))
        self._attention = stack(dense("attention")) if "attention.weight" in weights else None
        self._num_outputs = len(weights["output.weight"])

    def __call__(self, hidden_MD: Rows, offsets: Integers, *, num_threads: int) -> Rows:
        """Return the logits [S, C] of the spans that :func:`list_spans` lists.

        ``offsets``: int64 [B + 1], the first row of each sequence, then M.
        """
        start_MH = self._start(hidden_MD, num_threads=num_threads)
        end_MH = self._end(hidden_MD, num_threads=num_threads)
        logits = [np.zeros((0, self._num_outputs), np.float32)]
        for firsts, lasts, summary_NH in self._summaries(hidden_MD, offsets, num_threads):
            whole_NH = start_MH[firsts] + end_MH[lasts] + summary_NH
            raised_NH = activate_rows(whole_NH, function="gelu", num_threads=num_threads)
            logits.append(self._output(raised_NH, num_threads=num_threads))
        return np.concatenate(logits)

    def _summaries(
        self, hidden_MD: Rows, offsets: Integers, num_threads: int
    ) -> Iterator[tuple[Integers, Integers, Rows]]:
        """Yield, for each width, its spans' first rows [N], last rows [N] and term of g, [N, H].

        The term is the product of g with its part of the dense layer's weight.
        """
        values_MH = self._summary(hidden_MD, num_threads=num_threads)
        scores_M1 = np.zeros((len(values_MH), 1), np.float32)
        if self._attention is not None:
            scores_M1 = self._attention(hidden_MD, num_threads=num_threads)
        room = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(hidden_MD))
        firsts = np.flatnonzero(room >= 1)
        # The running softmax: maximum m, sum l and accumulator of each start.
        acc_NH: Any = values_MH
        m_N1, l_N1 = scores_M1, np.ones_like(scores_M1)
        yield firsts, firsts, values_MH
        for width in range(2, self.max_width + 1):
            kept = np.flatnonzero(room[firsts] >= width)
            if not len(kept):
                return
            firsts, m_N1, l_N1, acc_NH = firsts[kept], m_N1[kept], l_N1[kept], acc_NH[kept]
            lasts = firsts + (width - 1)
            added_N1 = scores_M1[lasts]
            higher_N1 = np.maximum(m_N1, added_N1)
            shrunk_N1, weight_N1 = np.exp(m_N1 - higher_N1), np.exp(added_N1 - higher_N1)
            l_N1 = l_N1 * shrunk_N1 + weight_N1
            acc_NH = acc_NH * shrunk_N1 + weight_N1 * values_MH[lasts]
            m_N1 = higher_N1
            yield firsts, lasts, acc_NH / l_N1
