"""Makes cases of one operation: its implementations beside plain PyTorch, by the numeric budget.

Inputs are drawn as in the operation's tests (``tests/ops/cases.py``), and the gate is the tests'
rule (``tests/budget.py``): error(ours) <= 2 x error(same-dtype eager) + floor.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.case import Call, Candidate, Case, CaseSpec, Options, Verdict
from encoder_engine import ops
from encoder_engine.ops.registry import Facts
from tests.budget import floor, largest, max_error
from tests.ops.cases import LENGTHS, dtype_id, implementations, rows

Tensors = dict[str, Tensor]
Function = Callable[..., Tensor]
MakeWork = Callable[["Shape"], "Work"]
SEED = 7
# Short times scatter more than long ones, and rounds are cheap here.
ROUNDS = 15


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of one case."""

    lengths: tuple[int, ...]
    num_heads: int
    head_dim: int
    dtype: torch.dtype
    device: str

    @property
    def num_tokens(self) -> int:
        """Packed rows, T."""
        return sum(self.lengths)

    @property
    def width(self) -> int:
        """Features of a row, D."""
        return self.num_heads * self.head_dim

    @property
    def facts(self) -> Facts:
        """What every operation is chosen by."""
        return Facts(device=self.device, dtype=dtype_id(self.dtype))

    def draw(self, *sizes: int, seed: int) -> Tensor:
        """Draw a tensor in the case's dtype, as the tests do."""
        return rows(*sizes, seed=seed, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another way to compute it in plain PyTorch; ``unavailable``: why it cannot take part."""

    name: str
    function: Function
    unavailable: str | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an operation's cases differ in.

    ``inputs`` are the tensors that gradients are taken of, by name. ``ours(by, **inputs)`` runs the
    implementation ``by``. ``eager(**inputs)`` is the plain PyTorch that the budget is judged by,
    and a candidate itself; ``rivals`` are further ones. All return the same packed tensor.
    ``terms`` is the length of the longest sum. ``facts``: where the operation has its own.
    """

    inputs: Tensors
    ours: Callable[..., Tensor]
    eager: Function
    terms: int
    rivals: tuple[Rival, ...] = ()
    facts: Facts | None = None


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """``training``: forward and backward. ``equal``: no two lengths differ."""

    training: bool
    equal: bool

    @property
    def name(self) -> str:
        mode = "training" if self.training else "forward"
        return f"{mode}-equal" if self.equal else mode

    @property
    def summary(self) -> str:
        steps = "forward and backward" if self.training else "forward"
        return f"{steps} on {'equal' if self.equal else 'mixed'} lengths"


def op_specs(
    operation: str,
    make_work: MakeWork,
    *,
    ragged: bool = False,
    inference_only: bool = False,
    prefix: str | None = None,
) -> list[CaseSpec]:
    """Name the cases of an operation, by ``prefix`` where its own name is taken.

    ``ragged``: equal lengths are another case than mixed ones. ``inference_only``: it has no
    gradient, and runs on a CPU.
    """
    kinds = [
        _Kind(training=training, equal=equal)
        for training in ((False,) if inference_only else (False, True))
        for equal in ((False, True) if ragged else (False,))
    ]
    return [
        CaseSpec(
            name=f"{prefix or operation}/{kind.name}",
            summary=f"ops.{operation} {kind.summary}, each implementation and plain PyTorch",
            make=partial(
                _make_case, f"{prefix or operation}/{kind.name}", operation, make_work, kind
            ),
            devices=("cpu",) if inference_only else ("cpu", "cuda"),
        )
        for kind in kinds
    ]


def make_shape(options: Options, *, equal: bool) -> Shape:
    """Choose sizes: MiniLM's on a processor, BERT-large's on a GPU; mixed lengths log-uniform."""
    on_gpu = options.device == "cuda"
    shape = Shape(
        lengths=(512,) * 128 if on_gpu else (128,) * 32,
        num_heads=16 if on_gpu else 12,
        head_dim=64 if on_gpu else 32,
        dtype=torch.bfloat16 if on_gpu else torch.float32,
        device=options.device,
    )
    if options.smoke:
        return replace(shape, lengths=(5, 5, 5) if equal else tuple(LENGTHS[-2]), num_heads=2)
    if equal:
        return shape
    longest = shape.lengths[0]
    low, high = math.log(longest / 16), math.log(2 * longest)
    drawn = np.exp(np.random.default_rng(SEED).uniform(low, high, size=len(shape.lengths)))
    return replace(shape, lengths=tuple(int(length) for length in drawn))


def _make_case(
    name: str, operation: str, make_work: MakeWork, kind: _Kind, options: Options
) -> Case:
    shape = make_shape(options, equal=kind.equal)
    work = make_work(shape)
    truth = _call(partial(work.ours, "reference"), _wide(work.inputs), training=kind.training)()
    eager = _call(work.eager, work.inputs, training=kind.training)()
    return Case(
        name=name,
        candidates=tuple(_candidates(operation, work, shape, training=kind.training)),
        gate=BudgetGate(truth=truth, eager=eager, inputs=work.inputs, terms=work.terms),
        fingerprint=hashlib.sha256(repr((name, asdict(shape))).encode()).hexdigest()[:16],
        seed=SEED,
        amounts={"tokens": shape.num_tokens},
        device=options.device,
        rounds=ROUNDS,
    )


def _wide(inputs: Tensors) -> Tensors:
    return {name: tensor.double() for name, tensor in inputs.items()}


def _candidates(operation: str, work: Work, shape: Shape, *, training: bool) -> Iterator[Candidate]:
    facts = replace(work.facts or shape.facts, requires_grad=training)
    reasons = dict(ops.find_operation(operation).explain(facts))
    for name in implementations(operation):
        yield Candidate(
            name=f"encoder-engine {name}",
            role="ours",
            build=partial(_call, partial(work.ours, name), work.inputs, training=training),
            unavailable=reasons[name],
        )
    eager = Rival(name="torch eager", function=work.eager)
    for rival in (eager, *work.rivals):
        yield Candidate(
            name=rival.name,
            role="peer",
            build=partial(_call, rival.function, work.inputs, training=training),
            unavailable=rival.unavailable,
        )


def _call(function: Function, inputs: Tensors, *, training: bool) -> Call:
    """Return a call that computes the output and, in training, every input's gradient."""
    if not training:
        return torch.inference_mode()(lambda: {"output": function(**inputs)})
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
    weights = None

    def forward_and_backward() -> Tensors:
        nonlocal weights
        output = function(**leaves)
        if weights is None:
            generator = torch.Generator().manual_seed(SEED)
            weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
            weights = weights.to(output.dtype).to(output.device)
        gradients = torch.autograd.grad(output, list(leaves.values()), weights)
        named = {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}
        return {"output": output.detach(), **named}

    return forward_and_backward


@dataclass(frozen=True, kw_only=True)
class BudgetGate:
    """Hold the output and every gradient to the budget that eager PyTorch sets."""

    truth: Mapping[str, Tensor]
    eager: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    terms: int

    def __call__(self, output: Mapping[str, Tensor]) -> Verdict:
        """Report the error that comes closest to, or goes farthest beyond, what is allowed."""
        size = largest(*self.inputs.values(), *self.truth.values())
        shares: dict[str, float] = {}
        for name, truth in self.truth.items():
            found, eager = output[name], self.eager[name]
            if found.shape != truth.shape or found.dtype != eager.dtype:
                reason = f"{name} is {found.dtype} {list(found.shape)}, not {list(truth.shape)}"
                return Verdict(passed=False, reason=reason)
            rounding = floor(truth, eager.dtype, terms=self.terms, size=size)
            shares[name] = max_error(found, truth) / (2 * max_error(eager, truth) + rounding)
        worst = max(shares, key=lambda name: shares[name])
        share = min(shares[worst], 1e300)
        figures = {"share_of_error_budget": share}
        if share <= 1.0:
            return Verdict(passed=True, figures=figures)
        return Verdict(
            passed=False, figures=figures, reason=f"{worst} is {share:.3g} times its error budget"
        )
