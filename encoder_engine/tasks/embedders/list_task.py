"""The parts that the sparse and the late-interaction task share: their loss and their prompts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.errors import InputError
from encoder_engine.kinds.prompts import document_prompt
from encoder_engine.tasks.embedders.examples import are_scored_lists, check_loss
from encoder_engine.tasks.embedders.settings import ListSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.tasks.embedders.examples import RetrievalExample

__all__ = ["fitted", "stated_prompts"]

AnyTask = TypeVar("AnyTask", bound=ListSettings[Any])


def fitted(task: AnyTask, examples: Sequence[RetrievalExample]) -> AnyTask:
    """Return the task with a loss that fits the rows.

    Raises :class:`InputError` for no row, and for rows that lack what the loss needs.
    """
    if not examples:
        raise InputError("there is no training row")
    loss = task.loss or ("divergence" if are_scored_lists(examples) else "in_batch")
    check_loss(loss, examples)
    return replace(task, loss=loss)


def stated_prompts(prompts: Mapping[str, str]) -> dict[str, str]:
    """Return the prompts of queries and documents among those of a directory."""
    named = document_prompt(prompts)
    return {
        "query": prompts.get("query") or "",
        "document": (prompts.get(named) or "") if named else "",
    }
