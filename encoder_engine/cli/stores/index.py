"""``encoder-engine index``: builds a FAISS index of stored vectors, for ``search --index``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts

if TYPE_CHECKING:
    from encoder_engine.vectors.faiss_index import IndexReport

KINDS = ("hnsw", "flat")


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--output", "-o", required=True, help="The index, such as vectors.faiss.")
@option.choice(
    "--kind",
    KINDS,
    "A graph, which finds the share --recall of the nearest rows, or all vectors, exactly.",
    "hnsw",
)
@option.value(
    "--recall",
    "The share of the nearest rows that the graph has to find; it is measured.",
    0.98,
    kind=click.FloatRange(min=0, max=1, min_open=True),
)
@option.number("--links", "Links of a row.  [default: measured]", least=2)
@option.number("--construction", "Candidates when a row is added.  [default: measured]", least=2)
@option.number(
    "--depth", "Candidates of a search, whatever --recall says.  [default: measured]", least=2
)
@option.overwrite
def index(store: str, output: str, **options: Any) -> None:
    """Index the vectors of STORE with FAISS, to search faster.

    search --index uses the index. STORE is a file of vectors or a folder of shards, as embed wrote
    it. All vectors are in memory while the index is built. Below some 50,000 rows an exact search
    takes no longer.
    """
    from encoder_engine.vectors.faiss_index import IndexSettings, write_index
    from encoder_engine.vectors.stored_vectors import StoredVectors

    overwrite = options.pop("overwrite")
    report = write_index(
        StoredVectors(store), Path(output), IndexSettings(**options), overwrite=overwrite
    )
    print_facts("Done", {"indexed": count(report.rows), **_found(report), "index": output})


def _found(report: IndexReport) -> dict[str, str]:
    if report.kind == "flat":
        return {"recall": "all: every search is exact"}
    return {
        "recall": f"{report.recall:.1%} of the nearest rows, measured by 512 queries unlike them",
        "graph": f"{report.links} links, construction {report.construction}, depth {report.depth}",
    }
