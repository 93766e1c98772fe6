"""Which implementation an operation uses: a pure function from facts to a name, or to reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ImplementationError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Explanation = list[tuple[str, str | None]]


def explain(
    candidates: Sequence[tuple[str, Callable[[Any], str | None]]], facts: object
) -> Explanation:
    """Ask every candidate, in order of preference: ``None`` means it can, a sentence why not."""
    return [(name, refuse(facts)) for name, refuse in candidates]


def choose(operation: str, explanation: Explanation, requested: str | None) -> str:
    """Name the implementation to use.

    The first that can, or exactly the one requested: an explicit request never falls back. Raises
    :class:`UnknownNameError` for a name the operation does not have, and
    :class:`ImplementationError` with the reasons where the request, or everybody, refuses.
    """
    reasons = dict(explanation)
    if requested is not None:
        if requested not in reasons:
            raise UnknownNameError(
                f"{operation} has no implementation {requested!r}; it has {', '.join(reasons)}"
            )
        refusal = reasons[requested]
        if refusal is not None:
            raise ImplementationError(f"{operation}: {requested} was asked for, but {refusal}")
        return requested
    for name, refusal in explanation:
        if refusal is None:
            return name
    told = "; ".join(f"{name}: {refusal}" for name, refusal in explanation)
    raise ImplementationError(f"{operation}: no implementation can take this call ({told})")
