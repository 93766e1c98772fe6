"""The operations and their named implementations; how a call finds the one to run."""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine import kernels
from encoder_engine.errors import ShapeError, UnknownNameError
from encoder_engine.ops import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

IMPLEMENTATION_NAMES = ("triton", "native", "aten", "reference")
_OPERATIONS: dict[str, Operation] = {}
# The package that this file is of: modules of implementations are its attributes once imported.
_OPS = sys.modules["encoder_engine.ops"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an implementation may decide by. Every operation extends it with its own facts."""

    device: str = "cpu"
    dtype: str = "float32"
    requires_grad: bool = False


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to compute an operation.

    ``module`` holds a function named like the operation and is imported when first chosen;
    ``refuse`` maps facts to None (it can) or to a sentence that says why not; ``unasked`` says
    whether it may be chosen for them without being named.
    """

    name: str
    module: str
    refuse: Callable[[Any], str | None] = lambda _facts: None
    unasked: Callable[[Any], bool] = lambda _facts: True


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation's name, the facts it is chosen by, and its implementations, best first."""

    name: str
    facts: type[Facts]
    implementations: tuple[Implementation, ...]
    _found: dict[tuple[object, ...], Callable[..., Any]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for implementation in self.implementations:
            assert implementation.name in IMPLEMENTATION_NAMES, implementation.name
        assert self.name not in _OPERATIONS, self.name
        _OPERATIONS[self.name] = self

    def explain(self, facts: Facts, *, named: bool = False) -> choose.Explanation:
        """Say for every implementation whether it can, and why not; ``named``: if asked for."""
        candidates = [(i.name, i.refuse if named else _unasked(i)) for i in self.implementations]
        return choose.explain(candidates, facts)

    def find(
        self, requested: str | None, *tensors: Tensor | None, **others: object
    ) -> Callable[..., Any]:
        """Return the function to call for these tensors; ``others``: facts they do not tell.

        What was found once is found again without a fact being spelled out: that would take longer
        than a short text's norm.
        """
        if requested is None and _requested:
            requested = _requested.get(self.name, _requested.get("*"))
        if torch.compiler.is_compiling():
            facts = tensor_facts(*tensors) | others
            return _look_up(_choose_module(self.name, requested, facts), self.name)
        first = tensors[0]
        assert first is not None
        key = (requested, first.device, first.dtype, _wants_grad(tensors), *others.values())
        function = self._found.get(key)
        if function is None:
            module = _choose_module(self.name, requested, tensor_facts(*tensors) | others)
            function = self._found[key] = _look_up(module, self.name)
        return function


def _choose_module(operation: str, requested: str | None, facts: dict[str, Any]) -> str:
    found = _OPERATIONS[operation]
    told = found.explain(found.facts(**facts), named=requested is not None)
    name = choose.choose(operation, told, requested)
    module = next(i.module for i in found.implementations if i.name == name)
    importlib.import_module(module)
    return module


# While torch.compile traces, who computes is decided, and imported, once for the graph. This is
# what torch.compiler.assume_constant_result does, besides importing the compiler.
_choose_module._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _look_up(module: str, function: str) -> Callable[..., Any]:
    """Find a function of a module that is imported, by steps that torch.compile can trace."""
    _, room, *steps = module.split(".")
    found: Any = {"kernels": kernels, "ops": _OPS}[room]
    for name in (*steps, function):
        found = getattr(found, name)
    computed: Callable[..., Any] = found
    return computed


def _unasked(implementation: Implementation) -> Callable[[Any], str | None]:
    def refuse(facts: Any) -> str | None:
        refusal = implementation.refuse(facts)
        if refusal is None and not implementation.unasked(facts):
            return f"on {facts.device} it runs only where it is asked for by name"
        return refusal

    return refuse


# A plain dict under a lock, not a ContextVar: torch.compile cannot trace ContextVar.get.
_requested: dict[str, str] = {}
_requested_lock = threading.Lock()


def tensor_facts(*tensors: Tensor | None) -> dict[str, Any]:
    """Read the facts every operation shares off its tensors; the first decides device and dtype."""
    first = tensors[0]
    assert first is not None
    return {
        "device": first.device.type,
        "dtype": str(first.dtype).removeprefix("torch."),
        "requires_grad": _wants_grad(tensors),
    }


def _wants_grad(tensors: tuple[Tensor | None, ...]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to autocast's type where that is on, as PyTorch does for a matrix product."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)


def autocast_norm(input_TD: Tensor, residual_TD: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Cast to the sum's type where autocast is on, on a GPU to float32, as PyTorch's norms do."""
    device = input_TD.device.type
    if not torch.is_autocast_enabled(device):
        return input_TD, residual_TD
    dtype = (
        input_TD.dtype if device == "cpu" else torch.promote_types(input_TD.dtype, torch.float32)
    )
    if residual_TD is None:
        return input_TD.to(dtype), None
    dtype = torch.promote_types(dtype, residual_TD.dtype)
    return input_TD.to(dtype), residual_TD.to(dtype)


def check_alike(first: Tensor, **others: Tensor | None) -> None:
    """Raise :class:`ShapeError` for a tensor of another dtype or device than the first.

    Under autocast dtypes may differ: PyTorch casts what it computes.
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


def asked() -> bool:
    """Say whether :func:`use` names who is to compute anything."""
    return bool(_requested)


def operations() -> tuple[str, ...]:
    """Name every operation."""
    return tuple(sorted(_OPERATIONS))


def find_operation(name: str) -> Operation:
    """Look an operation up; :class:`UnknownNameError` lists the known ones."""
    if name not in _OPERATIONS:
        raise UnknownNameError(f"no operation {name!r}; there are {', '.join(operations())}")
    return _OPERATIONS[name]


def explain(operation: str, **facts: object) -> choose.Explanation:
    """Say which implementations of an operation could take a call, best first.

    Returns ``[(implementation, None | "why not"), ...]``. ``facts`` are the operation's own
    (``device="cuda"``, ``dtype="float16"``, ``head_dim=64``); what is left out has its default.
    """
    found = find_operation(operation)
    known = {field.name for field in fields(found.facts)}
    unknown = sorted(set(facts) - known)
    if unknown:
        raise UnknownNameError(
            f"{operation} is not chosen by {', '.join(unknown)}; its facts are "
            f"{', '.join(sorted(known))}"
        )
    if "dtype" in facts:
        facts["dtype"] = str(facts["dtype"]).removeprefix("torch.")
    return found.explain(found.facts(**facts))  # type: ignore[arg-type]


@contextmanager
def use(implementation: str, *, operation: str | None = None) -> Iterator[None]:
    """Run every operation, or one, by the named implementation, for the whole process.

    An operation that lacks it, or whose facts it refuses, raises rather than falling back. Not a
    per-thread setting: it is for tests, measurements and debugging. Nests.
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
