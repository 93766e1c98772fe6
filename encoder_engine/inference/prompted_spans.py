"""The layers of GLiNER after the encoder, which score spans of words by labels, without PyTorch.

How it works: MLPs compute a vector of a span's first word and of its last word. A third MLP maps
both, concatenated, to the span's vector, and its dot product with a label's vector is the score.
The third MLP's first layer is linear in the two words, so it is computed once per word instead of
per span, and its second layer is multiplied into the labels. A span then costs an addition, a ReLU
and C dot products instead of two dense layers: for 12 spans a word and 10 labels a fiftieth of the
multiplications.

Dimensions: T tokens, M words and N texts of a batch, W words and K widths of spans of a text, C
labels, D features, F = 4 D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.inference.layers import pack
from encoder_engine.inference.lstm import CompiledLstm, lstm_shapes
from encoder_engine.inference.module_stack import CompiledStack
from encoder_engine.inference.rows import project_rows
from encoder_engine.packing.module_stack import DenseModule, ModuleStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.gliner import GlinerSettings

    Rows = npt.NDArray[np.float32]
    Integers = npt.NDArray[np.int64]

__all__ = ["PromptedSpanHead", "WordRows", "prompted_span_shapes"]

# Words whose vectors of 4 D features are in memory at a time, but for a longer text.
_MOST_WORDS = 4096
_PROJECTION, _PROMPT, _RNN = "token_rep_layer.projection", "prompt_rep_layer", "rnn.lstm"
_SPAN = "span_rep_layer.span_rep_layer"


class WordRows(NamedTuple):
    """Which tokens of a batch belong to which word and to which label.

    tokens: int64 [T'], the indices of words' tokens.
    words: int64 [T'], the word of each of these tokens, ascending from 0 to M - 1.
    offsets: int64 [N + 1], the first word of each text, then M.
    labels: int64 [N, C], for each text the indices of its labels' tokens.
    """

    tokens: Integers
    words: Integers
    offsets: Integers
    labels: Integers


def prompted_span_shapes(settings: GlinerSettings, width: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of these layers, by its name in a GLiNER checkpoint.

    ``width``: the encoder's number of features.
    """
    own = settings.width
    shapes: dict[str, tuple[int, ...]] = {}
    if own != width:
        shapes = {f"{_PROJECTION}.weight": (own, width), f"{_PROJECTION}.bias": (own,)}
    for name, depth in (
        (_PROMPT, own),
        (f"{_SPAN}.project_start", own),
        (f"{_SPAN}.project_end", own),
        (f"{_SPAN}.out_project", 2 * own),
    ):
        shapes |= {f"{name}.0.weight": (4 * own, depth), f"{name}.0.bias": (4 * own,)}
        shapes |= {f"{name}.3.weight": (own, 4 * own), f"{name}.3.bias": (own,)}
    recurrent = lstm_shapes(own, settings.num_layers)
    return shapes | {f"{_RNN}.{name}": shape for name, shape in recurrent.items()}


class PromptedSpanHead:
    """Scores spans of 1 to ``settings.max_width`` words by labels, in float32."""

    def __init__(self, weights: Mapping[str, Array], settings: GlinerSettings) -> None:
        self.settings = settings
        weights = {name: array.astype(np.float32) for name, array in weights.items()}

        def dense(name: str, activation: str = "identity") -> DenseModule:
            return DenseModule(
                weight_NK=weights[f"{name}.weight"],
                bias_N=weights.get(f"{name}.bias"),
                activation="relu" if activation == "relu" else "identity",
            )

        def word(name: str, part: slice, bias: Rows | None) -> CompiledStack:
            """Return a word's MLP, a ReLU, and the third MLP's first layer for this word."""
            after = DenseModule(
                weight_NK=weights[f"{_SPAN}.out_project.0.weight"][:, part],
                bias_N=bias,
                activation="identity",
            )
            layers = dense(f"{_SPAN}.{name}.0", "relu"), dense(f"{_SPAN}.{name}.3", "relu"), after
            return CompiledStack(ModuleStack(layers))

        own = settings.width
        self._projection = None
        if f"{_PROJECTION}.weight" in weights:
            self._projection = CompiledStack(ModuleStack((dense(_PROJECTION),)))
        self._lstm = None
        if settings.num_layers:
            named = {name.removeprefix(f"{_RNN}."): array for name, array in weights.items()}
            self._lstm = CompiledLstm(named, settings.num_layers)
        self._start = word("project_start", slice(own), weights[f"{_SPAN}.out_project.0.bias"])
        self._end = word("project_end", slice(own, None), None)
        self._labels = CompiledStack(
            ModuleStack((dense(f"{_PROMPT}.0", "relu"), dense(f"{_PROMPT}.3")))
        )
        # The last row makes the product of a label and the bias.
        last = f"{_SPAN}.out_project.3"
        self._into_labels = pack(
            np.vstack([weights[f"{last}.weight"].T, weights[f"{last}.bias"]]), None
        )

    def __call__(self, states_TD: Rows, rows: WordRows, *, num_threads: int) -> list[Rows]:
        """Return, for each text, the probability of each label for each of its spans, [W, K, C].

        The span at [w, k] has the words w to w + k; where it would end after the text it has 0.

        ``states_TD``: the encoder's hidden states.
        """
        used = np.concatenate([rows.labels.ravel(), rows.tokens])
        used_TD = np.ascontiguousarray(states_TD[used])
        if self._projection is not None:
            used_TD = self._projection(used_TD, num_threads=num_threads)
        labels_CD = self._labels(used_TD[: rows.labels.size], num_threads=num_threads)
        words_MD = self._pool(used_TD[rows.labels.size :], rows)
        if self._lstm is not None:
            words_MD = self._lstm(words_MD, rows.offsets, num_threads=num_threads)
        labels_CF = project_rows(labels_CD, self._into_labels, num_threads=num_threads)
        by_item = labels_CF.reshape(*rows.labels.shape, -1)
        found: list[Rows] = []
        # A part of the texts at a time: their words may be many.
        while (low := len(found)) < len(by_item):
            first = int(rows.offsets[low])
            fitting = np.searchsorted(rows.offsets, first + _MOST_WORDS, side="right") - 1
            high = max(int(fitting), low + 1)
            last = int(rows.offsets[high])
            start_MF = self._start(words_MD[first:last], num_threads=num_threads)
            end_MF = self._end(words_MD[first:last], num_threads=num_threads)
            for item in range(low, high):
                own = slice(rows.offsets[item] - first, rows.offsets[item + 1] - first)
                found.append(self._score(start_MF[own], end_MF[own], by_item[item], num_threads))
        return found

    def _score(self, start_WF: Rows, end_WF: Rows, by_label: Rows, num_threads: int) -> Rows:
        count, labels_CF = len(start_WF), by_label[:, :-1]
        layer = pack(labels_CF, np.ascontiguousarray(by_label[:, -1]))
        scores = np.zeros((count, self.settings.max_width, len(labels_CF)), np.float32)
        for longer in range(min(self.settings.max_width, count)):
            spans_WF = start_WF[: count - longer] + end_WF[longer:]
            np.maximum(spans_WF, np.float32(0), out=spans_WF)
            logits_WC = project_rows(spans_WF, layer, num_threads=num_threads)
            # The sigmoid by tanh, which does not overflow.
            scores[: count - longer, longer] = 0.5 * np.tanh(0.5 * logits_WC) + 0.5
        return scores

    def _pool(self, tokens_TD: Rows, rows: WordRows) -> Rows:
        """Pool tokens to one row per word, [M, D]; zeros for a word without a token."""
        words_MD = np.zeros((int(rows.offsets[-1]), tokens_TD.shape[1]), np.float32)
        if not len(tokens_TD):
            return words_MD
        firsts = np.flatnonzero(np.r_[True, rows.words[1:] != rows.words[:-1]])
        there, pooling = rows.words[firsts], self.settings.pooling
        if pooling == "first":
            words_MD[there] = tokens_TD[firsts]
        elif pooling == "last":
            words_MD[there] = tokens_TD[np.r_[firsts[1:], len(tokens_TD)] - 1]
        elif pooling == "max":
            words_MD[there] = np.maximum.reduceat(tokens_TD, firsts)
        else:
            counts = np.diff(np.r_[firsts, len(tokens_TD)])
            words_MD[there] = np.add.reduceat(tokens_TD, firsts) / counts[:, None]
        return words_MD
