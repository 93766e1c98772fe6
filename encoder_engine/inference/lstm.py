"""A bidirectional LSTM (Hochreiter and Schmidhuber 1997) on packed rows, without PyTorch.

How it works: one matrix product computes the inputs' contribution to all gates. The recurrent part
computes a time step of all sequences at once, sorted by length, so that the sequences still running
are the first rows.

Dimensions: M packed rows, B sequences, D features in and out, H = D / 2 of a direction; the gates
are input, forget, cell and output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import project_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array

    Rows = npt.NDArray[np.float32]
    Integers = npt.NDArray[np.int64]

__all__ = ["CompiledLstm", "lstm_shapes"]

_DIRECTIONS = ("", "_reverse")


def lstm_shapes(width: int, num_layers: int) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape in a bidirectional LSTM, by the names of ``torch.nn.LSTM``."""
    half = width // 2
    return {
        f"{name}_l{layer}{direction}": shape
        for layer in range(num_layers)
        for direction in _DIRECTIONS
        for name, shape in (
            ("weight_ih", (4 * half, width)),
            ("weight_hh", (4 * half, half)),
            ("bias_ih", (4 * half,)),
            ("bias_hh", (4 * half,)),
        )
    }


class CompiledLstm:
    """A stack of bidirectional LSTM layers, in float32.

    ``weights``: by the names of :func:`lstm_shapes`.
    """

    def __init__(self, weights: Mapping[str, Array], num_layers: int) -> None:
        def one(name: str) -> Array:
            return np.ascontiguousarray(weights[name], np.float32)

        self._layers = [
            [
                (
                    pack(
                        one(f"weight_ih_{place}"), one(f"bias_ih_{place}") + one(f"bias_hh_{place}")
                    ),
                    pack(one(f"weight_hh_{place}"), None),
                )
                for place in (f"l{layer}{direction}" for direction in _DIRECTIONS)
            ]
            for layer in range(num_layers)
        ]

    def __call__(self, rows_MD: Rows, offsets: Integers, *, num_threads: int) -> Rows:
        """Return the hidden states of both directions, concatenated, [M, D].

        ``offsets``: int64 [B + 1], the first row of each sequence, then M.
        """
        lengths = np.diff(offsets)
        order = np.argsort(-lengths, kind="stable")
        lengths, starts = lengths[order], offsets[:-1][order]
        # The sequences that are longer than each step.
        running = np.searchsorted(-lengths, -np.arange(lengths.max(initial=0)), side="left")
        for layer in self._layers:
            states = []
            for backward, (inward, recurrent) in enumerate(layer):
                gates_MG = project_rows(rows_MD, inward, num_threads=num_threads)
                half = recurrent.depth
                state_MH = np.empty((len(rows_MD), half), np.float32)
                hidden = np.zeros((len(lengths), half), np.float32)
                cell = np.zeros_like(hidden)
                for step, count in enumerate(running.tolist()):
                    place = starts[:count] + step
                    if backward:
                        place = starts[:count] + lengths[:count] - 1 - step
                    gates = gates_MG[place]
                    # Before the first step there is no state.
                    if step:
                        gates += project_rows(hidden[:count], recurrent, num_threads=1)
                    enter, forget, new, output = np.split(gates, 4, axis=1)
                    cell[:count] *= _sigmoid(forget)
                    cell[:count] += _sigmoid(enter) * np.tanh(new)
                    hidden[:count] = _sigmoid(output) * np.tanh(cell[:count])
                    state_MH[place] = hidden[:count]
                states.append(state_MH)
            rows_MD = np.concatenate(states, axis=1)
        return rows_MD


def _sigmoid(values: Rows) -> Rows:
    # By tanh, which does not overflow.
    raised: Rows = np.float32(0.5) * np.tanh(np.float32(0.5) * values) + np.float32(0.5)
    return raised
