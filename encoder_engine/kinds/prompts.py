"""The names of the prompts of queries and of documents among those of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["document_prompt", "query_prompt"]

# The names under which directories keep the prompt of documents, the first one first.
_DOCUMENT_NAMES = ("document", "passage", "corpus")


def query_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of the prompt of queries; None: there is none."""
    return "query" if "query" in prompts else None


def document_prompt(prompts: Mapping[str, str]) -> str | None:
    """Return the name of the prompt of documents; None: there is none.

    As in sentence-transformers, ``document`` is in every directory's prompts, as an empty text
    unless the directory states it.
    """
    return next((name for name in _DOCUMENT_NAMES if name in prompts), None)
