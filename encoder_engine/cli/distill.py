"""``encoder-engine distill``: distills an encoder into a static table of token vectors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import binary_size, check_new_folder, count, print_facts

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import StaticEmbedder

TABLE_DTYPES = ("float32", "float16", "bfloat16", "int8")


@click.command()
@option.model
@option.output(
    "A new folder, in the layout of model2vec and sentence-transformers.",
    required=True,
    type=option.PATH,
)
@option.hub
@option.number("--dimension", "Principal components to keep.", 256)
@click.option("--no-pca", is_flag=True, help="Keep the encoder's features as they are.")
@option.value(
    "--sif",
    "The coefficient of the weights by frequency.",
    1e-4,
    kind=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
)
@click.option("--no-sif", is_flag=True, help="Weight all tokens alike.")
@option.choice(
    "--pooling",
    ["mean", "cls", "lasttoken"],
    "Of a token's states, the special tokens' included.",
    "mean",
)
@option.choice("--dtype", TABLE_DTYPES, "Of the table in the file.", "float32")
@option.device
@option.number("--threads", "CPU threads.")
def distill(model: str, output: Path, **options: Any) -> None:
    """Distill a model into a static table of token vectors.

    Each token of its vocabulary goes through the encoder. The result embeds texts without an
    encoder; embed, search and StaticEmbedder load it.
    """
    from encoder_engine.embedding import StaticEmbedder

    check_new_folder(output)
    start = time.perf_counter()
    embedder = StaticEmbedder.distill(
        model,
        dimension=None if options["no_pca"] else options["dimension"],
        sif_coefficient=None if options["no_sif"] else options["sif"],
        pooling=options["pooling"],
        device=options["device"],
        num_threads=options["threads"],
        show_progress_bar=True,
        **option.hub_keywords(options),
    )
    embedder.save_pretrained(output, dtype=options["dtype"])
    print_facts("Done", _facts(embedder, output, time.perf_counter() - start))


def _facts(embedder: StaticEmbedder, output: Path, seconds: float) -> dict[str, str]:
    table = embedder.model.table
    return {
        "tokens": count(table.num_ids),
        "features": count(table.width),
        "file": binary_size((output / "model.safetensors").stat().st_size),
        "seconds": f"{seconds:.1f}",
        "folder": str(output),
    }
