"""Writes a model card: README.md with the metadata that the Hugging Face hub reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["CARD", "write_card"]

CARD = "README.md"


def write_card(
    folder: Path,
    *,
    loader: str,
    subject: str,
    base_model: str | None,
    facts: Mapping[str, str],
    call: str = 'vectors = model.encode(["a text", "another"])',
    task: str = "sentence-similarity",
) -> None:
    """Write README.md, unless there is one: how the model is loaded, and facts by name.

    loader: the class that loads the directory.
    subject: a sentence that describes the model's results.
    base_model: the model that this one was derived from.
    call: a line that uses the model.
    task: the hub's name of the model's task.
    """
    if (folder / CARD).exists():
        return
    lines = ["---", "library_name: sentence-transformers", f"pipeline_tag: {task}"]
    # A path of this machine is not an id of the hub.
    if base_model and base_model.count("/") <= 1 and not base_model.startswith((".", "/")):
        lines.append(f"base_model: {base_model}")
    lines += ["tags:", "- sentence-transformers", "- feature-extraction", "---", ""]
    lines += [
        f"# {folder.resolve().name}",
        "",
        subject,
        "",
        "```python",
        f"from encoder_engine.embedding import {loader}",
        "",
        f'model = {loader}.from_pretrained("{folder.resolve().name}")',
        call,
        "```",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
    ]
    write_atomically(folder / CARD, ("\n".join(lines) + "\n").encode("utf-8"))
