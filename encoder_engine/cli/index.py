"""``encoder-engine index``: a FAISS index of stored vectors, for ``search --index``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from encoder_engine.cli.common import count, debug_option, print_facts

KINDS = ("hnsw", "flat")


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--output", "-o", required=True, help="The index, such as vectors.faiss.")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="hnsw",
    show_default=True,
    help="A graph that finds nearly all in little time, or all vectors, exactly.",
)
@click.option("--overwrite", is_flag=True, help="Replace the index if it exists.")
@debug_option
def index(store: str, output: str, **options: Any) -> None:
    """Index the vectors of STORE with FAISS (extra faiss); search --index uses it.

    STORE is a file of vectors or a folder of shards, as embed wrote it. All vectors are held in
    memory meanwhile.
    """
    from encoder_engine.embedding.nearest_index import write_index
    from encoder_engine.embedding.search import StoredVectors

    num_rows = write_index(
        StoredVectors(store), Path(output), options["kind"], overwrite=options["overwrite"]
    )
    print_facts("Done", {"indexed": count(num_rows), "index": output})
