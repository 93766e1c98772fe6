"""``encoder-engine search``: the stored rows nearest to a query, exactly."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import debug_option, print_facts, print_json

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder
    from encoder_engine.embedding.search import StoredVectors


@click.command()
@click.argument("store", metavar="STORE")
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", help="The model.  [default: the one a folder's manifest names]")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows each.")
@click.option("--index", help="An index of STORE, from the verb index; nearly exact, and faster.")
@click.option("--prompt", help="A text put before every query.")
@click.option("--prompt-name", help="The name of one of the model's own prompts.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per query.")
@debug_option
def search(store: str, queries: tuple[str, ...], **options: Any) -> None:
    """Print the rows of STORE whose vectors have the greatest dot products with each QUERY's.

    STORE is a file of vectors or a folder of shards, as embed wrote it; it is read once, block by
    block. With vectors of length 1 the score is the cosine.
    """
    from encoder_engine.embedding.search import StoredVectors, search_vectors

    stored = StoredVectors(store)
    embedder = _load(stored, options["model"], options["device"])
    settings = {} if stored.manifest is None else stored.manifest["plan"]["options"]
    vectors = embedder.encode(
        list(queries),
        prompt=options["prompt"],
        prompt_name=options["prompt_name"],
        normalize_embeddings=settings.get("normalized"),
        truncate_dim=settings.get("dimension"),
    )
    if options["index"] is None:
        found = search_vectors(stored, vectors, options["top"])
    else:
        from encoder_engine.embedding.nearest_index import search_index

        found = search_index(stored, Path(options["index"]), vectors, options["top"])
    for query, hits in zip(queries, found, strict=True):
        if options["as_json"]:
            print_json({"query": query, "hits": [asdict(hit) for hit in hits]})
        else:
            rows = [hit.row if hit.identifier is None else hit.identifier for hit in hits]
            lines = [f"{hit.score:.4f}  {row}" for hit, row in zip(hits, rows, strict=True)]
            facts = {f"{rank}.": line for rank, line in enumerate(lines, start=1)}
            print_facts(query, facts)


def _load(stored: StoredVectors, model: str | None, device: str) -> Embedder:
    """Load the model; refuse another than the one a manifest tells the fingerprints of."""
    from encoder_engine.embedding import Embedder
    from encoder_engine.embedding.dataset.plan import model_fingerprint, tokenizer_fingerprint
    from encoder_engine.errors import ConfigError, InputError

    manifest = stored.manifest
    name = manifest["model"] if manifest is not None and model is None else model
    if name is None:
        raise InputError(f"{stored.path} does not say which model made it; name it with --model")
    told = {} if manifest is None else manifest["plan"]["model"]
    embedder = Embedder.from_pretrained(
        name,
        device=device,
        dtype=told.get("dtype", "auto"),
        quantization=told.get("quantization"),
        pooling=told.get("pooling"),
        max_seq_length=told.get("max_seq_length"),
        layers=dict(told.get("layers", ())) or None,
    )
    if manifest is None:
        return embedder
    differing = []
    if model_fingerprint(embedder.encoder) != told["fingerprint"]:
        differing.append("weights")
    if tokenizer_fingerprint(embedder.tokenizer) != manifest["plan"]["tokenizer"]["fingerprint"]:
        differing.append("tokenizers")
    if differing:
        raise ConfigError(
            f"{name} is not the model that made {stored.path}: their {' and '.join(differing)} "
            "differ; name that one"
        )
    return embedder
