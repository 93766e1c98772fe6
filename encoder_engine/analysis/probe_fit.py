"""Fits probes: softmax regression, or one hidden layer, on one layer or a scalar mix of layers.

How it works: the loss is the mean cross-entropy plus ``penalty / (2 n)`` times the squared weights,
over all n training edges at once, minimised by L-BFGS; for the linear probe of one layer it is
convex, so that the result depends on no order or seed. A probe that stops by its number of steps is
reported as unconverged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FittedProbe", "fit_probe"]

# Training ends when the gradient's greatest entry is below this, in nats.
TOLERANCE = 1e-4


class Probe(nn.Module):
    """A classifier of hidden states [L, n, D]; several layers are mixed by learned weights."""

    def __init__(self, num_layers: int, width: int, num_labels: int, hidden: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.zeros(num_layers)) if num_layers > 1 else None
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.output = nn.Linear(hidden or width, num_labels)
        if not hidden:
            # The convex problem starts at no preference.
            nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, states_LND: Tensor) -> Tensor:
        """Return the scores of the labels for hidden states, [n, C]."""
        mixed_ND = states_LND[0]
        if self.mix is not None:
            mixed_ND = torch.einsum("l,lnd->nd", self.mix.softmax(0), states_LND)
        if self.hidden is not None:
            mixed_ND = F.relu(self.hidden(mixed_ND))
        scores: Tensor = self.output(mixed_ND)
        return scores

    def matrices(self) -> Iterator[Tensor]:
        """Yield the probe's matrices, whose squares are the penalty in the loss."""
        yield from (parameter for parameter in self.parameters() if parameter.dim() == 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedProbe:
    """A trained probe.

    ``converged``: whether the gradient vanished before the steps ended.
    ``weights``: the weights of the mixed layers; empty for one layer.
    """

    probe: Probe
    converged: bool
    weights: tuple[float, ...]

    def accuracy(self, states_LND: Tensor, labels_N: Tensor) -> float:
        """Return the percentage of labels that are predicted correctly; a label -1 never is."""
        with torch.no_grad():
            predicted = self.probe(states_LND).argmax(1)
        return 100.0 * float((predicted == labels_N).double().mean())


def fit_probe(
    states_LND: Tensor,
    labels_N: Tensor,
    num_labels: int,
    *,
    hidden: int = 0,
    penalty: float = 1.0,
    steps: int = 300,
    seed: int = 0,
) -> FittedProbe:
    """Train a probe on hidden states, float32 [L, n, D], with labels, int64 [n].

    hidden: features of the hidden layer; 0: a linear probe. penalty: the factor of the squared
    weights. steps: the most steps of L-BFGS. seed: of the initial weights.
    """
    num_layers, number, width = states_LND.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = Probe(num_layers, width, num_labels, hidden)
    optimizer = torch.optim.LBFGS(
        probe.parameters(),
        max_iter=steps,
        history_size=20,
        tolerance_grad=TOLERANCE,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def loss() -> float:
        optimizer.zero_grad()
        shrunk = sum((matrix**2).sum() for matrix in probe.matrices())
        value = F.cross_entropy(probe(states_LND), labels_N) + penalty / (2 * number) * shrunk
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    loss()
    steepest = max(float(p.grad.abs().max()) for p in probe.parameters() if p.grad is not None)
    mix = () if probe.mix is None else tuple(probe.mix.detach().softmax(0).tolist())
    return FittedProbe(probe=probe, converged=steepest <= TOLERANCE, weights=mix)
