"""Writes the card of a saved model: README.md with the metadata that the hub reads."""

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
    dimension: int,
    base_model: str | None,
    facts: Mapping[str, str],
    method: str = "encode",
    vectors: str = "vectors",
) -> None:
    """Write README.md unless there is one: how the model is loaded, and facts by name.

    loader: the class that loads the directory.
    base_model: the model that this one was made of.
    method: of the class, which embeds texts. vectors: the kind of vectors.
    """
    if (folder / CARD).exists():
        return
    lines = ["---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    # A path of this machine is not an id of the hub.
    if base_model and base_model.count("/") <= 1 and not base_model.startswith((".", "/")):
        lines.append(f"base_model: {base_model}")
    lines += ["tags:", "- sentence-transformers", "- feature-extraction", "---", ""]
    lines += [
        f"# {folder.resolve().name}",
        "",
        f"Texts to {vectors} of {dimension} features.",
        "",
        "```python",
        "import encoder_engine as ee",
        "",
        f'embedder = ee.{loader}.from_pretrained("{folder.resolve().name}")',
        f'vectors = embedder.{method}(["a text", "another"])',
        "```",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
    ]
    write_atomically(folder / CARD, ("\n".join(lines) + "\n").encode("utf-8"))
