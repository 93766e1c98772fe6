"""``encoder-engine quantize``: writes a quantized copy of vectors, for ``search --quantized``."""

from __future__ import annotations

from pathlib import Path

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import binary_size, count, print_facts


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="A .npy file.")
@option.choice("--precision", ["int8", "ubinary"], "A byte or a bit for each feature.", "int8")
@option.overwrite
def quantize(store: str, output: Path, precision: str, overwrite: bool) -> None:
    """Write a copy of STORE in fewer bits, to search faster.

    search --quantized finds candidates in the copy and scores these by STORE's own vectors.
    """
    from encoder_engine.vectors.quantized import write_copy
    from encoder_engine.vectors.stored_vectors import StoredVectors

    copy = write_copy(
        StoredVectors(store),
        output,
        precision,  # type: ignore[arg-type]
        overwrite=overwrite,
    )
    facts = {
        "rows": count(copy.rows),
        "features": count(copy.dimension),
        "file": binary_size(output.stat().st_size),
        "copy": str(output),
    }
    print_facts("Done", facts)
