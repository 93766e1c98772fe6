"""Chooses the implementation of an operation: a pure function from facts to a name or reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ImplementationError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Explanation = list[tuple[str, str | None]]


def explain(
    candidates: Sequence[tuple[str, Callable[[Any], str | None]]], facts: object
) -> Explanation:
    """Return each candidate with None if it can take the call, else with the reason why not."""
    return [(name, refuse(facts)) for name, refuse in candidates]


def choose(operation: str, explanation: Explanation, requested: str | None) -> str:
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
