"""A learned weighted sum of an encoder's layers (Peters et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from encoder_engine.errors import InputError, ShapeError

if TYPE_CHECKING:
    from encoder_engine.models.network import EncoderOutput

__all__ = ["ScalarMix"]


class ScalarMix(nn.Module):
    """The mix ``scale * sum(softmax(scores)[i] * hidden_states[i])`` of ``num_layers`` + 1 states.

    ``scale`` and ``scores`` are learned; the initial mix is the mean of all states, the embeddings
    included.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        if num_layers < 1:
            raise InputError(f"num_layers must be at least 1, got {num_layers}")
        self.scores = nn.Parameter(torch.zeros(num_layers + 1))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, output: EncoderOutput) -> Tensor:
        """Return the mix [T, D] of an output of ``encoder(batch, output_hidden_states=True)``.

        Raises :class:`ShapeError` where the numbers of hidden states and scores differ.
        """
        states = output.hidden_states or ()
        if len(states) != len(self.scores):
            raise ShapeError(
                f"there are {len(states)} hidden states for {len(self.scores)} scores; call the "
                "encoder with output_hidden_states=True"
            )
        weights = self.scale * self.scores.softmax(0)
        return (torch.stack(states) * weights[:, None, None].to(states[0])).sum(0)

    @property
    def weights(self) -> dict[int, float]:
        """The weight of each layer, as ``Embedder.from_pretrained(layers=...)`` takes it."""
        learned = (self.scale * self.scores.softmax(0)).detach().double().tolist()
        return dict(enumerate(learned))
