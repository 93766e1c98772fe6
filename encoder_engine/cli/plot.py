"""``encoder-engine plot``: draws stored vectors as a map, in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts

if TYPE_CHECKING:
    from encoder_engine.vectors.projection import Projection
    from encoder_engine.vectors.stored_vectors import StoredVectors

METHODS = ("pca", "umap")


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--output", "-o", required=True, help="The page, such as map.html.")
@option.choice("--method", METHODS, "The projection; umap needs the extra plot.", "pca")
@click.option("--most-rows", type=click.IntRange(min=3), default=5000, show_default=True)
@click.option(
    "--texts",
    "inputs",
    multiple=True,
    metavar="INPUT",
    help="The embedded texts.  [default: the inputs in a folder's manifest]",
)
@click.option("--column", help="The column of the texts.  [default: the manifest's, or text]")
@option.input_format
@click.option("--no-texts", is_flag=True, help="Show ids, or row numbers alone.")
@option.overwrite
def plot(store: str, output: str, **options: Any) -> None:
    """Write a page that shows the vectors of STORE as a map.

    Each point shows its text. STORE is a file of vectors or a folder of shards, as embed wrote it.
    The page needs no network and no other file.
    """
    from encoder_engine.files import write_atomically, writing
    from encoder_engine.vectors.plot_page import plot_page
    from encoder_engine.vectors.projection import project
    from encoder_engine.vectors.stored_vectors import StoredVectors

    target, stored = Path(output), StoredVectors(store)
    stored.check_target(target, options["inputs"], overwrite=options["overwrite"])
    found = project(stored, options["method"], most_rows=options["most_rows"])
    texts = _names(stored, found) if options["no_texts"] else _texts(stored, found, options)
    title = f"{count(len(found.rows))} vectors of {Path(store).name}"
    page = plot_page(title, found, texts).encode("utf-8")
    with writing(target):
        write_atomically(target, page)
    print_facts("Done", {"points": count(len(found.rows)), "page": output})


def _texts(stored: StoredVectors, found: Projection, options: dict[str, Any]) -> list[str]:
    from encoder_engine.vectors.origins import read_texts

    wanted = found.rows.tolist()
    texts = read_texts(
        stored,
        set(wanted),
        inputs=options["inputs"],
        column=options["column"],
        input_format=options["input_format"],
    )
    return [texts[row] for row in wanted]


def _names(stored: StoredVectors, found: Projection) -> list[str]:
    wanted = found.rows.tolist()
    names = stored.identifiers(set(wanted))
    return [str(names.get(row, "")) for row in wanted]
