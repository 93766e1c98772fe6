"""Has the operations of a model computed by one implementation."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from encoder_engine import ops

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def computed_by(implementation: str, *, requires_grad: bool) -> Iterator[None]:
    """Have every operation that can computed by one implementation."""
    able = []
    for operation in ops.operations():
        found = ops.find_operation(operation)
        facts = found.facts(requires_grad=requires_grad)
        if (implementation, None) in found.explain(facts, named=True):
            able.append(operation)
    if not able:
        pytest.skip(f"no operation can be computed by {implementation} here")
    with ExitStack() as stack:
        for operation in able:
            stack.enter_context(ops.use(implementation, operation=operation))
        yield
