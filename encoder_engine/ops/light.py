"""Shortens the dispatch path from a call of a registered operator to its kernel.

``torch.library.custom_op`` costs the host much of a training call: it fills in the schema's
defaults argument by argument, flattens lists of tensors, dispatches twice and compares every output
with every input. Here, kernels for one device's dispatch keys take precedence over the generic ones
and call the operator's function directly. A call that is traced (torch.compile, fake tensors,
dispatch modes) is redispatched, and seen as one operator.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from encoder_engine.errors import ImplementationError

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "encoder_engine"
_DEVICES = ("CPU", "CUDA")
_library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
_done: set[str] = set()
# Modules of operators may be imported by several threads at once.
_lock = threading.Lock()


def lighten() -> None:
    """Give every operator registered since the last call the short dispatch path."""
    from torch._library.custom_ops import OPDEFS

    with _lock:
        # Copies in one step: another thread may define an operator meanwhile.
        for reference in OPDEFS.valuerefs():
            definition = reference()
            if definition is None:
                continue
            name = definition._qualname
            namespace, _, own = name.partition("::")
            if namespace == NAMESPACE and name not in _done:
                _register(own, definition)
                _done.add(name)


def _register(name: str, definition: Any) -> None:
    compute = definition._init_fn
    differentiable = _make_differentiable(definition)
    register: Any = _library.impl
    for device in _DEVICES:
        register(name, compute, device)
        register(name, differentiable, f"Autograd{device}", with_keyset=True)


def _make_differentiable(definition: Any) -> Callable[..., Any]:
    """Return an autograd kernel that calls the function of an operator directly."""
    compute, overload = definition._init_fn, definition._opoverload

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            # Last, so that the places of the gradients are those of the operator's arguments.
            *given, call = arguments
            with torch._C._AutoDispatchBelowAutograd():
                result = call(*given)
            if definition._setup_context_fn is not None:
                definition._setup_context_fn(ctx=ctx, inputs=tuple(given), output=result)
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            if definition._backward_fn is None:
                raise ImplementationError(
                    f"{overload} has no gradient, but a gradient was requested"
                )
            found = definition._backward_fn(ctx, *gradients)
            found = found if isinstance(found, tuple) else (found,)
            # A list of tensors, such as a layout, has no gradient.
            return (*(None if isinstance(x, list) else x for x in found), None)

    def dispatch(keyset: Any, *arguments: Any) -> Any:
        def redispatch(*given: Any) -> Any:
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *given)

        call = redispatch if _is_traced(keyset) else compute
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return Differentiated.apply(*arguments, call)  # type: ignore[no-untyped-call]
        if forward_ad._current_level >= 0 and any(_has_tangent(x) for x in arguments):
            raise ImplementationError(f"{overload} has no forward mode, but an input has a tangent")
        with torch._C._AutoDispatchBelowAutograd():
            return call(*arguments)

    return dispatch


def _has_tangent(x: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return False
    return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]


def _is_traced(keyset: Any) -> bool:
    """Return whether a dispatch mode or a subclass of Tensor must intercept the call."""
    return keyset.has(torch._C.DispatchKey.Python) or torch._C._len_torch_dispatch_stack() > 0
