"""The operations, their named implementations, and the choice between them for each call.

How it works: an operation lists its implementations, the fastest first. Each has two predicates
over the facts of a call (device, dtype, gradients, sizes): ``refuse`` returns None or the reason
why it cannot take the call; ``automatic`` tells whether it may be chosen without being named. A
call uses the first implementation that does not refuse and is automatic; :func:`use` and
``implementation=`` name one, which then computes or raises. The choice is cached by (request,
device, dtype, gradients, other facts), so that a repeated call pays for one dictionary look-up.
Under torch.compile the choice is a constant of the graph.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import contextmanager
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from encoder_engine import kernels
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ImplementationError, ShapeError, UnknownNameError
from encoder_engine.ops import light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

# Each implementation with None if it can take a call, else with the reason why not.
Explanation = list[tuple[str, str | None]]
IMPLEMENTATION_NAMES = ("triton", "native", "aten", "reference")
_OPERATIONS: dict[str, Operation] = {}
# The package that this file is of: modules of implementations are its attributes once imported.
_OPS = sys.modules["encoder_engine.ops"]


@dataclass(frozen=True, kw_only=True)
class CallFacts:
    """The facts of a call by which an implementation is chosen; operations add their own.

    ``transformed``: a transform of torch.func or forward mode is active, or the call is traced and
    requires a gradient: only PyTorch's own operations support that.
    """

    device: str = "cpu"
    dtype: str = "float32"
    requires_grad: bool = False
    transformed: bool = False


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to compute an operation.

    ``module``: the module with a function of the operation's name; imported when first chosen.
    ``refuse``: maps facts to None, or to the reason why it cannot take the call.
    ``automatic``: whether it may be chosen for these facts without being named.
    """

    name: str
    module: str
    refuse: Callable[[Any], str | None] = lambda _facts: None
    automatic: Callable[[Any], bool] = lambda _facts: True


def plain(
    room: str, refuse: Callable[[Any], str | None] = Implementation.refuse
) -> tuple[Implementation, Implementation]:
    """Return an operation's ``aten`` and ``reference`` implementations.

    ``room``: their module in ``ops/aten``, and the folder of the reference in ``kernels``.
    ``refuse``: returns why both cannot take a call, or None.
    """
    aten, reference = f"encoder_engine.ops.aten.{room}", f"encoder_engine.kernels.{room}.reference"
    return (
        Implementation(name="aten", module=aten, refuse=refuse),
        Implementation(name="reference", module=reference, refuse=refuse),
    )


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: its name, the class of its calls' facts, and its implementations in order."""

    name: str
    facts: type[CallFacts]
    implementations: tuple[Implementation, ...]
    _found: dict[tuple[object, ...], Callable[..., Any]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for implementation in self.implementations:
            assert implementation.name in IMPLEMENTATION_NAMES, implementation.name
        assert self.name not in _OPERATIONS, self.name
        _OPERATIONS[self.name] = self

    def explain(self, facts: CallFacts, *, named: bool = False) -> Explanation:
        """Return each implementation's name with why it refuses a call, or None if it does not.

        ``named``: the implementation would be requested by name.
        """
        return [
            (i.name, i.refuse(facts) if named else _refuse_unnamed(i)(facts))
            for i in self.implementations
        ]

    def find(
        self, requested: str | None, *tensors: Tensor | None, **others: object
    ) -> Callable[..., Any]:
        """Return the function that computes the operation for these tensors.

        ``requested``: an implementation's name, or None: what :func:`use` requests, else the first
        that can take the call. ``others``: further facts of the call. Raises as
        :func:`choose_implementation` does.

        The result is cached: building the facts anew would take longer than a short text's norm.
        """
        if requested is None and _requested:
            requested = _requested.get(self.name, _requested.get("*"))
        if torch.compiler.is_compiling():
            facts = tensor_facts(*tensors) | others
            facts["transformed"] = facts["requires_grad"]
            return _look_up(_choose_module(self.name, requested, facts), self.name)
        first = tensors[0]
        assert first is not None
        transformed = is_transformed()
        wants_grad = transformed or _wants_grad(tensors)
        key = (requested, first.device, first.dtype, wants_grad, transformed, *others.values())
        function = self._found.get(key)
        if function is None:
            own = {"requires_grad": wants_grad, "transformed": transformed}
            facts = tensor_facts(*tensors) | own | others
            module = _choose_module(self.name, requested, facts)
            function = self._found[key] = _look_up(module, self.name)
        return function


def choose_implementation(operation: str, explanation: Explanation, requested: str | None) -> str:
    """Return the name of the implementation to use: the requested one, or the first that can.

    An explicit request never falls back. Raises :class:`UnknownNameError` for a name that the
    operation lacks, and :class:`ImplementationError` with the reasons where the requested
    implementation, or every one, refuses.
    """
    reasons = dict(explanation)
    if requested is not None:
        if requested not in reasons:
            raise UnknownNameError(
                f"{operation} has no implementation {requested!r}; it has {', '.join(reasons)}"
            )
        refusal = reasons[requested]
        if refusal is not None:
            raise ImplementationError(f"{operation}: {requested} was requested, but {refusal}")
        return requested
    for name, refusal in explanation:
        if refusal is None:
            return name
    reasons_given = "; ".join(f"{name}: {refusal}" for name, refusal in explanation)
    raise ImplementationError(
        f"{operation}: no implementation can take this call ({reasons_given})"
    )


def _choose_module(operation: str, requested: str | None, facts: dict[str, Any]) -> str:
    found = _OPERATIONS[operation]
    explanation = found.explain(found.facts(**facts), named=requested is not None)
    name = choose_implementation(operation, explanation, requested)
    module = next(i.module for i in found.implementations if i.name == name)
    importlib.import_module(module)
    light.lighten()
    return module


# torch.compile takes the result as a constant of the graph. This is what
# torch.compiler.assume_constant_result does, without importing the compiler.
_choose_module._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _look_up(module: str, function: str) -> Callable[..., Any]:
    """Import a module and return one of its functions, in steps that torch.compile can trace."""
    _, room, *steps = module.split(".")
    found: Any = {"kernels": kernels, "ops": _OPS}[room]
    for name in (*steps, function):
        found = getattr(found, name)
    computed: Callable[..., Any] = found
    return computed


def _refuse_unnamed(implementation: Implementation) -> Callable[[Any], str | None]:
    def refuse(facts: Any) -> str | None:
        refusal = implementation.refuse(facts)
        if refusal is None and not implementation.automatic(facts):
            return f"on {facts.device} such a call takes it only when requested by name"
        return refusal

    return refuse


# A plain dict under a lock, not a ContextVar: torch.compile cannot trace ContextVar.get.
_requested: dict[str, str] = {}
_requested_lock = threading.Lock()


def tensor_facts(*tensors: Tensor | None) -> dict[str, Any]:
    """Return a call's facts that all operations share; device and dtype are the first tensor's."""
    first = tensors[0]
    assert first is not None
    return {
        "device": first.device.type,
        "dtype": str(first.dtype).removeprefix("torch."),
        "requires_grad": _wants_grad(tensors),
    }


def _wants_grad(tensors: tuple[Tensor | None, ...]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_transformed() -> bool:
    """Return whether a transform of torch.func, or forward mode, is active.

    Both need PyTorch's own operations: other implementations would drop the tangents.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast tensors to autocast's dtype if it is on, as PyTorch does before a matrix product."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)


def autocast_dtype(x: Tensor) -> str | None:
    """Return the dtype to which autocast casts a matrix product's operand; None: no cast."""
    device = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


# The dtype of the residual stream under autocast, where one is chosen.
_residual: list[torch.dtype | None] = [None]


@contextmanager
def residual(dtype: torch.dtype | None) -> Iterator[None]:
    """Keep the residual stream in a dtype under autocast, for the whole process; it nests.

    The stream is what blocks add to, and what norms read and return. In bfloat16 a step of
    BERT-base on a GPU moves 58 GB beside its matrix products instead of 111: norms are bound by
    memory. Norms compute in float32 in either case. None: as PyTorch does, float32 on a GPU and
    the wider dtype of a sum on a CPU.
    """
    before = _residual[0]
    _residual[0] = dtype
    try:
        yield
    finally:
        _residual[0] = before


def residual_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype that autocast gives the residual stream; None: the tensors' own."""
    device = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return None
    if _residual[0] is None and device != "cpu":
        return torch.float32
    return _residual[0]


def autocast_residual(input_TD: Tensor, residual_TD: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Cast a norm's input and residual to :func:`residual_dtype`; None: leave them as they are."""
    dtype = residual_dtype(input_TD)
    if dtype is None:
        return input_TD, residual_TD
    return input_TD.to(dtype), None if residual_TD is None else residual_TD.to(dtype)


def check_alike(first: Tensor, **others: Tensor | None) -> None:
    """Raise :class:`ShapeError` for a tensor of another dtype or device than the first.

    Under autocast dtypes may differ.
    """
    device, dtype = first.device, first.dtype
    for name, other in others.items():
        if other is None:
            continue
        if other.device != device:
            raise ShapeError(f"{name} is on {other.device}, the input on {device}")
        if other.dtype != dtype and not torch.is_autocast_enabled(device.type):
            raise ShapeError(f"{name} is {other.dtype}, the input is {dtype}")


def check_device(first: Tensor, **others: Tensor | None) -> None:
    """Raise :class:`ShapeError` for a tensor on another device than the first."""
    for name, other in others.items():
        if other is not None and other.device != first.device:
            raise ShapeError(f"{name} is on {other.device}, the input on {first.device}")


def check_probability(dropout: float) -> None:
    """Raise :class:`ShapeError` unless 0 <= dropout < 1."""
    if not 0.0 <= dropout < 1.0:
        raise ShapeError(f"dropout must be at least 0 and below 1, got {dropout}")


def requested() -> bool:
    """Return whether :func:`use` is in force for any operation."""
    return bool(_requested)


def operations() -> tuple[str, ...]:
    """Return the names of all registered operations, sorted."""
    return tuple(sorted(_OPERATIONS))


def find_operation(name: str) -> Operation:
    """Return an operation by name; raises :class:`UnknownNameError` that lists the known ones."""
    if name not in _OPERATIONS:
        raise UnknownNameError(f"no operation {name!r}; there are {', '.join(operations())}")
    return _OPERATIONS[name]


def explain(operation: str, **facts: object) -> Explanation:
    """Explain which implementations of an operation can take a call, best first.

    Returns ``[(implementation, None | "why not"), ...]``. ``facts``: the operation's facts
    (``device="cuda"``, ``dtype="float16"``, ``head_dim=64``); a missing one has its default. Raises
    :class:`UnknownNameError` for an operation or a fact that does not exist.
    """
    found = find_operation(operation)
    known = {field.name for field in fields(found.facts)}
    unknown = sorted(set(facts) - known)
    if unknown:
        raise UnknownNameError(
            f"the choice for {operation} does not depend on {', '.join(unknown)}; its facts are "
            f"{', '.join(sorted(known))}"
        )
    if "dtype" in facts:
        facts["dtype"] = str(facts["dtype"]).removeprefix("torch.")
    return found.explain(found.facts(**facts))  # type: ignore[arg-type]


@contextmanager
def use(implementation: str, *, operation: str | None = None) -> Iterator[None]:
    """Run every operation, or one, by the named implementation, for the whole process.

    An operation without that implementation, or whose call it refuses, raises instead of falling
    back. The setting is not per thread: it is for tests, measurements and debugging. It nests.
    Raises :class:`UnknownNameError` for a name that no implementation or operation has.
    """
    if implementation not in IMPLEMENTATION_NAMES:
        raise UnknownNameError(
            f"no implementation {implementation!r}; there are {', '.join(IMPLEMENTATION_NAMES)}"
        )
    key = "*" if operation is None else find_operation(operation).name
    with _requested_lock:
        before = _requested.get(key)
        _requested[key] = implementation
    try:
        yield
    finally:
        with _requested_lock:
            if before is None:
                _requested.pop(key, None)
            else:
                _requested[key] = before
