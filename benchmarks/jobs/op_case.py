"""Makes cases of one operation: its implementations against plain PyTorch, within a numeric budget.

Inputs are drawn as in the operation's tests (``tests/ops/cases.py``), and the gate is the tests'
rule (``encoder_engine/ops/testing.py``): error(ours) <= 2 x error(same-dtype eager) + floor.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.measuring.case import (
    Call,
    Candidate,
    Case,
    CaseSpec,
    Options,
    Verdict,
    digest,
    ours,
)
from benchmarks.measuring.case import Work as TimedWork
from benchmarks.measuring.ceilings import Ceiling, copy_ceiling, product_ceiling
from encoder_engine import ops
from encoder_engine.ops.registry import CallFacts, choose_implementation
from encoder_engine.ops.testing import (
    LENGTHS,
    dtype_id,
    floor,
    implementations,
    largest,
    max_error,
    rows,
)

Tensors = dict[str, Tensor]
Function = Callable[..., Tensor]
MakeShape = Callable[[Options], "Shape"]
MakeWork = Callable[["Shape"], "Work"]
SEED = 7
# Short times scatter more than long ones, and rounds are cheap here.
ROUNDS = 15


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a case: lengths of the packed sequences, heads, dtype and device."""

    lengths: tuple[int, ...]
    num_heads: int
    head_dim: int
    dtype: torch.dtype
    device: str

    @property
    def num_tokens(self) -> int:
        """The number T of packed rows, one for each token."""
        return sum(self.lengths)

    @property
    def width(self) -> int:
        """The number D of features of a row."""
        return self.num_heads * self.head_dim

    @property
    def facts(self) -> CallFacts:
        """The device and dtype by which :mod:`encoder_engine.ops` chooses an implementation."""
        return CallFacts(device=self.device, dtype=dtype_id(self.dtype))

    def draw(self, *sizes: int, seed: int) -> Tensor:
        """Draw a tensor in the case's dtype on its device; on a GPU this costs the host no time."""
        if self.device == "cuda":
            return draw_normal(sizes, seed=seed, device=self.device).to(self.dtype)
        return rows(*sizes, seed=seed, dtype=self.dtype, device=self.device)

    def inputs(self, **sizes: tuple[int, ...]) -> Tensors:
        """Draw a tensor of each name and size."""
        return {n: self.draw(*size, seed=seed) for seed, (n, size) in enumerate(sizes.items())}


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another library's function for the operation; ``unavailable``: why it cannot run, or None.

    ``timed``: the function that is timed, where ``function`` is only judged.
    """

    name: str
    function: Function
    timed: Function | None = None
    unavailable: str | None = None
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work:
    """An operation as its cases measure it: inputs, implementations, and the reference.

    - ``inputs``: the tensors by name, for which gradients are computed.
    - ``ours(by, **inputs)`` runs the implementation ``by``.
    - ``eager(**inputs)``: plain PyTorch, from which the budget follows. It is also a candidate, and
      a compiled one where ``compilable``.
    - ``rivals``: further candidates. All candidates return the same packed tensor.
    - ``terms``: the number of terms of the longest sum, from which the budget's floor follows.
    - ``facts``: the facts by which an implementation is chosen, where the operation has its own.
    - ``refusals``: the implementations to measure, each with the reason why it cannot run, or None.
      Default: those that ``ops`` knows of the operation.
    - ``timed(by, **inputs)`` and ``eager_timed(**inputs)`` are timed where ``ours`` and ``eager``
      are only judged: with dropout no two results are the same.

    For the roofline:

    - ``operations`` of the forward pass's GEMMs; the backward pass has ``backward_ratio`` times as
      many. They are computed in ``precision`` (default: the shape's dtype).
    - ``read_bytes`` of a forward pass that does not read all of its inputs.
    """

    inputs: Tensors
    ours: Callable[..., Tensor]
    eager: Function
    terms: int
    timed: Callable[..., Tensor] | None = None
    eager_timed: Function | None = None
    rivals: tuple[Rival, ...] = ()
    facts: CallFacts | None = None
    refusals: Mapping[str, str | None] | None = None
    compilable: bool = True
    operations: int = 0
    backward_ratio: float = 2.0
    precision: str | None = None
    read_bytes: int | None = None


CPU, GPU, BOTH = ("cpu",), ("cuda",), ("cpu", "cuda")


def op_specs(
    operation: str,
    make_work: MakeWork,
    *,
    group: str | None = None,
    modes: Sequence[str] = ("forward", "training"),
    lengths: Sequence[str] = ("mixed",),
    shape: MakeShape | None = None,
    devices: tuple[str, ...] = BOTH,
) -> list[CaseSpec]:
    """Return an operation's cases, one for each mode and lengths, named ``group/training-equal``.

    ``modes``: "forward" and "training", or the one of them that the operation has.
    ``lengths``: of the sequences, "mixed" or "equal".
    ``group``: default: the operation's name.
    ``shape``: makes the sizes; None: :func:`make_shape`.
    """
    known = f"ops.{operation}" if operation in ops.operations() else operation
    specs = []
    for mode in modes:
        steps = "forward and backward" if mode == "training" else "forward"
        for kind in lengths:
            name = f"{group or operation}/{mode}{'-equal' if kind == 'equal' else ''}"
            make = partial(
                _make_case,
                name,
                operation,
                make_work,
                shape or partial(make_shape, equal=kind == "equal"),
                training=mode == "training",
            )
            ways = "each implementation and plain PyTorch"
            summary = f"{known} {steps} on {kind} lengths, {ways}"
            specs.append(CaseSpec(name=name, summary=summary, make=make, devices=devices))
    return specs


def fixed_shape(lengths: tuple[int, ...], num_heads: int, head_dim: int, options: Options) -> Shape:
    """Return the given sizes, which only a GPU has the time for; in a smoke run, small ones."""
    small = (5, 5, 5) if len(set(lengths)) == 1 else (5, 3, 5)
    return Shape(
        lengths=small if options.smoke else lengths,
        num_heads=2 if options.smoke else num_heads,
        head_dim=head_dim,
        dtype=torch.bfloat16 if options.device == "cuda" else torch.float32,
        device=options.device,
    )


def make_shape(options: Options, *, equal: bool) -> Shape:
    """Return the usual sizes: MiniLM's on a CPU, BERT-large's on a GPU.

    ``equal``: sequences of equal length; else of log-uniform lengths.
    """
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


def liger(shape: Shape, function: Function) -> Rival:
    """Return Liger Kernel's function as a rival."""
    return Rival(
        name="Liger",
        function=function,
        unavailable=why_missing(shape.device, "liger_kernel", "liger-kernel"),
        libraries=("liger-kernel",),
    )


def why_missing(device: str, module: str, library: str) -> str | None:
    """Return why a GPU library is unavailable, or None; ``library``: the name in the reason."""
    if device != "cuda":
        return f"{library} is for CUDA devices"
    return None if importlib.util.find_spec(module) else f"{library} is not installed"


def _make_case(
    name: str,
    operation: str,
    make_work: MakeWork,
    choose_shape: MakeShape,
    options: Options,
    *,
    training: bool,
) -> Case:
    shape = choose_shape(options)
    work = make_work(shape)
    truth = make_call(partial(work.ours, "reference"), widened(work.inputs), training=training)()
    eager = make_call(work.eager, work.inputs, training=training)()
    return Case(
        name=name,
        candidates=tuple(_candidates(work, shape, operation, options, training=training)),
        gate=BudgetGate(truth=truth, eager=eager, inputs=work.inputs, terms=work.terms),
        fingerprint=digest(name, asdict(shape)),
        seed=SEED,
        amounts={"tokens": shape.num_tokens, **_efforts(work, eager["output"], training=training)},
        ceilings={} if options.smoke else _ceilings(work, shape, options),
        device=options.device,
        rounds=ROUNDS,
    )


def _efforts(work: Work, output: Tensor, *, training: bool) -> dict[str, int]:
    """Count the work that no candidate can avoid: operations, and bytes read and written.

    Backward reads the inputs and the output's gradient, and writes every gradient.
    """
    inputs = sum(tensor.nbytes for tensor in work.inputs.values())
    read = inputs if work.read_bytes is None else work.read_bytes
    moved, operations = read + output.nbytes, work.operations
    if training:
        moved, operations = 2 * moved + inputs, round((1 + work.backward_ratio) * operations)
    efforts = {"moved bytes": moved}
    return efforts | {"operations": operations} if operations else efforts


def _ceilings(work: Work, shape: Shape, options: Options) -> dict[str, Ceiling]:
    found = {}
    # Between calls on a CPU the inputs may stay in its caches, which copying does not measure.
    if options.device == "cuda":
        found["moved bytes"] = copy_ceiling(options.device, options.threads)
    if work.operations:
        precision = work.precision or dtype_id(shape.dtype)
        found["operations"] = product_ceiling(options.device, precision, options.threads)
    return found


def widened(inputs: Tensors) -> Tensors:
    """Return the inputs in float64, for the computation of the exact result."""
    return {name: tensor.double() for name, tensor in inputs.items()}


def _candidates(
    work: Work, shape: Shape, operation: str, options: Options, *, training: bool
) -> Iterator[Candidate]:
    def build(judged: Function, timed: Function | None, compiled: bool = False) -> Call | TimedWork:
        if compiled:
            judged, timed = _compiled(judged), None if timed is None else _compiled(timed)
        answer = make_call(judged, work.inputs, training=training)
        if timed is None:
            return answer
        return TimedWork(call=make_call(timed, work.inputs, training=training), answer=answer)

    refusals = work.refusals
    if refusals is None:
        found = ops.find_operation(operation)
        facts = work.facts or found.facts(device=shape.device, dtype=dtype_id(shape.dtype))
        facts = replace(facts, requires_grad=training)
        default = choose_implementation(operation, found.explain(facts), None)
        # What calls choose comes first; a GPU measures what they leave too.
        reasons = dict(found.explain(facts, named=shape.device == "cuda"))
        names = sorted(implementations(operation), key=lambda name: name != default)
        refusals = {name: reasons[name] for name in names}
    for name, refusal in refusals.items():
        timed = None if work.timed is None else partial(work.timed, name)
        built = partial(build, partial(work.ours, name), timed)
        yield ours(built, f"encoder-engine {name}", unavailable=refusal)
    if work.compilable:
        yield Candidate(
            name="torch.compile",
            role="peer",
            build=partial(build, work.eager, work.eager_timed, compiled=True),
            unavailable=options.why_uncompiled,
        )
    eager = Rival(name="torch eager", function=work.eager, timed=work.eager_timed)
    for rival in (eager, *work.rivals):
        yield Candidate(
            name=rival.name,
            role="peer",
            build=partial(build, rival.function, rival.timed),
            unavailable=rival.unavailable,
            libraries=rival.libraries,
        )


def _compiled(function: Function) -> Function:
    return torch.compile(lambda **tensors: function(**tensors))


def make_call(function: Function, inputs: Tensors, *, training: bool) -> Call:
    """Return a call of ``function`` that returns the output and, in training, all gradients."""
    if not training:
        return torch.inference_mode()(lambda: {"output": function(**inputs)})
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
    weights = None

    def forward_and_backward() -> Tensors:
        nonlocal weights
        output = function(**leaves)
        if weights is None:
            weights = draw_normal(output.shape, seed=SEED, device=output.device).to(output.dtype)
        gradients = torch.autograd.grad(output, list(leaves.values()), weights)
        named = {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}
        return {"output": output.detach(), **named}

    return forward_and_backward


def draw_normal(sizes: Sequence[int], *, seed: int, device: torch.device | str) -> Tensor:
    """Draw N(0, 1) in float64; the values depend on the kind of device."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(tuple(sizes), generator=generator, dtype=torch.float64, device=device)


@dataclass(frozen=True, kw_only=True)
class BudgetGate:
    """A gate: the output's and all gradients' errors against a budget set by eager PyTorch's."""

    truth: Mapping[str, Tensor]
    eager: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    terms: int

    def __call__(self, output: Mapping[str, Tensor]) -> Verdict:
        """Compare all outputs with the budget; report the one that uses the largest share of it."""
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
