"""Pipelines of transformers beside ours, and the comparison of their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLOSE", "NLI", "assert_equal", "by_transformers"]

# Of the scores of both libraries in float32; measured: 3e-6, of vectors of tokens 4e-6. Of logits,
# whose rounding grows with them, it is the share: of 4.0, transformers' own error reached 1.1e-5.
CLOSE = 1e-5
NLI = ("contradiction", "entailment", "neutral")


def by_transformers(task: str, folder: Path, **options: Any) -> Any:
    """Make transformers' pipeline on the CPU."""
    import transformers

    make: Any = transformers.pipeline
    return make(task, str(folder), device="cpu", **options)


def assert_equal(ours: Any, theirs: Any, place: str = "result") -> None:
    """Compare nested lists and dicts: their shape, and each value; numbers by ``CLOSE``."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), place
        for key, value in theirs.items():
            # The word of a group: docs/pipelines.md.
            if key != "word" or "entity_group" not in theirs:
                assert_equal(ours[key], value, f"{place}[{key!r}]")
    elif isinstance(theirs, list):
        assert type(ours) is list, place
        assert len(ours) == len(theirs), place
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(one, other, f"{place}[{number}]")
    elif isinstance(theirs, (str, int)):
        assert ours == theirs, place
        assert type(ours) is type(theirs), place
    else:
        assert type(ours) is float, place
        assert abs(ours - float(theirs)) <= CLOSE * max(1.0, abs(float(theirs))), place
