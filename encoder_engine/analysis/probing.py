"""Fits probes of every layer and of layer mixes, with control tasks (Hewitt & Liang 2019).

How it works: features are centred by the training edges' mean. The control task gives each word
type a random label, drawn from the labels' frequencies: a probe that learns it as well has
memorised words. Selectivity is the task's accuracy minus the control's. The expected layer (Tenney
et al. 2019) is the mean layer, weighted by the accuracy that each layer adds to the mix of the
layers below it. Unlike in the paper, an accuracy that a layer takes away counts as 0, so that the
mean lies between the layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.analysis.edges import edge_states
from encoder_engine.analysis.probe_fit import fit_probe
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.analysis.edges import Edge, EdgeSet
    from encoder_engine.analysis.subject import Subject

__all__ = ["LayerProbe", "MixProbe", "ProbeData", "probe_layers", "probe_mixes"]


@dataclass(frozen=True, kw_only=True)
class LayerProbe:
    """The accuracy, in percent, of a probe on one layer, for the task and for the control task.

    ``control``: NaN without a control task. ``converged``: whether the fit of both converged.
    """

    layer: int
    accuracy: float
    control: float
    converged: bool

    @property
    def selectivity(self) -> float:
        """The accuracy on the task minus that on the control task, in percentage points."""
        return self.accuracy - self.control


@dataclass(frozen=True, kw_only=True)
class MixProbe:
    """Probes of mixes of layers 0 to l, for each l.

    ``accuracies``: in percent, of each l.
    ``weights``: the learned weights of the mix of all layers.
    ``centre``: the mean layer by these weights.
    ``expected_layer``: the mean layer, weighted by what each layer adds to the accuracy (a loss
    counts as 0); None: no layer adds anything.
    """

    accuracies: tuple[float, ...]
    weights: tuple[float, ...]
    centre: float
    expected_layer: float | None
    converged: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeData:
    """The data of edge probes: the vectors of edges in every layer, and the labels of the edges.

    An edge is a labelled span or pair of spans. The vectors are centred, [L + 1, n, D]; labels [n].
    ``train_control``, ``test_control``: the labels of the control task. A test label that training
    does not have is -1, which is never predicted.
    """

    train: Tensor
    test: Tensor
    train_labels: Tensor
    test_labels: Tensor
    train_control: Tensor
    test_control: Tensor
    labels: tuple[str, ...]

    @classmethod
    def measure(cls, subject: Subject, train: EdgeSet, test: EdgeSet, seed: int = 0) -> ProbeData:
        """Compute the vectors of training and test edges, once for all probes.

        Raises :class:`InputError` for fewer than two labels, and for edges of one span beside edges
        of two.
        """
        if len({len(edge.spans) for part in (train, test) for edge in part.edges}) > 1:
            raise InputError(
                "the edges of training or of the test have one span, the others two; give files of "
                "one kind"
            )
        states, edges = _states(subject, train, test)
        names = tuple(sorted({edge.label for edge in edges[0]}))
        if len(names) < 2:
            raise InputError(f"the training edges have {len(names)} labels; a probe needs two")
        numbers = {name: number for number, name in enumerate(names)}
        gold = [torch.tensor([numbers.get(e.label, -1) for e in part]) for part in edges]
        types = [
            [part.word_type(edge) for edge in kept]
            for part, kept in zip((train, test), edges, strict=True)
        ]
        control = _control_labels(types, gold[0], seed)
        # Centred alone: the regression then starts at the labels' frequencies.
        means = states[0].mean(1, keepdims=True)
        train_states, test_states = (torch.from_numpy(part - means) for part in states)
        return cls(
            train=train_states,
            test=test_states,
            train_labels=gold[0],
            test_labels=gold[1],
            train_control=control[0],
            test_control=control[1],
            labels=names,
        )

    @property
    def most_frequent(self) -> float:
        """The share of test edges, in percent, whose label is the most frequent one in training."""
        constant = self.train_labels.bincount().argmax()
        return 100.0 * float((self.test_labels == constant).double().mean())


def _states(
    subject: Subject, train: EdgeSet, test: EdgeSet
) -> tuple[list[npt.NDArray[np.float32]], list[list[Edge]]]:
    """Return vectors and edges of training and of test; parts of one file are computed together."""
    tested = {edge.sentence for edge in test.edges}
    if train.sentences is not test.sentences or any(e.sentence in tested for e in train.edges):
        found = [edge_states(subject, part) for part in (train, test)]
        return [states for states, _ in found], [edges for _, edges in found]
    states, edges = edge_states(subject, train._replace(edges=[*train.edges, *test.edges]))
    is_test = np.array([edge.sentence in tested for edge in edges], np.bool_)
    return [states[:, ~is_test], states[:, is_test]], [
        [edge for edge in edges if (edge.sentence in tested) == side] for side in (False, True)
    ]


def _control_labels(types: list[list[str]], labels: Tensor, seed: int) -> list[Tensor]:
    """Return random control labels of training and test edges; equal words have equal labels."""
    names = sorted({name for part in types for name in part})
    counts = labels.bincount().double().numpy()
    drawn = np.random.default_rng(seed).choice(
        len(counts), size=len(names), p=counts / counts.sum()
    )
    of_type = dict(zip(names, drawn.tolist(), strict=True))
    return [torch.tensor([of_type[name] for name in part]) for part in types]


def probe_layers(
    data: ProbeData, *, hidden: int = 0, control: bool = True, steps: int = 300
) -> tuple[LayerProbe, ...]:
    """Fit, on each layer alone, a probe of the task and one of the control task; score both."""
    found = []
    for layer in range(len(data.train)):
        train, test = data.train[layer : layer + 1], data.test[layer : layer + 1]
        size = len(data.labels)
        task = fit_probe(train, data.train_labels, size, hidden=hidden, steps=steps)
        accuracy, other = task.accuracy(test, data.test_labels), float("nan")
        converged = task.converged
        if control:
            fitted = fit_probe(train, data.train_control, size, hidden=hidden, steps=steps)
            other = fitted.accuracy(test, data.test_control)
            converged = converged and fitted.converged
        found.append(LayerProbe(layer=layer, accuracy=accuracy, control=other, converged=converged))
    return tuple(found)


def probe_mixes(data: ProbeData, *, hidden: int = 0, steps: int = 300) -> MixProbe:
    """Fit and score probes of the mixes of layers 0 to l, for every l."""
    fitted = [
        fit_probe(
            data.train[: layer + 1],
            data.train_labels,
            len(data.labels),
            hidden=hidden,
            steps=steps,
        )
        for layer in range(len(data.train))
    ]
    scores = [
        probe.accuracy(data.test[: layer + 1], data.test_labels)
        for layer, probe in enumerate(fitted)
    ]
    gains = np.maximum(np.diff(scores), 0.0)
    layers = np.arange(1, len(scores))
    weights = fitted[-1].weights
    return MixProbe(
        accuracies=tuple(scores),
        weights=weights,
        centre=float(np.dot(np.arange(len(weights)), weights)),
        expected_layer=float(layers @ gains / gains.sum()) if gains.sum() > 0 else None,
        converged=all(probe.converged for probe in fitted),
    )
