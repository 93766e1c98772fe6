"""``encoder-engine search``: finds the stored rows that are nearest to a query."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import pooling_modes, print_facts, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.embedding import Embedder, SparseEmbedder, StaticEmbedder
    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.stored_vectors import StoredVectors

# Options of STORE alone, not of the store that is joined with it.
_OF_STORE = ("model", "index", "quantized", "prompt", "prompt_name", "pooling", "max_seq_length")


@click.command()
@click.argument("store", metavar="STORE")
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@option.queries
@option.number("--top", "Results per query.", 10)
@option.copies
@click.option(
    "--fuse",
    metavar="STORE",
    help="Another store of the same texts, dense or sparse: the rankings are joined.",
)
@click.option("--pooling", help="The pooling of a file's vectors; see embed.")
@option.number("--max-seq-length", "The limit of a file's texts; see embed.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per query.")
def search(store: str, queries: tuple[str, ...], **options: Any) -> None:
    """Print the rows of STORE that are nearest to each QUERY.

    They are those whose vectors have the largest dot products with the query's. STORE is a file of
    dense or sparse vectors or a folder of shards that embed wrote. It is compared with the
    checksums of its manifest and read once, block by block. With vectors of length 1 the score is
    the cosine. With --fuse the score is the sum of both reciprocal ranks.
    """
    from encoder_engine.errors import InputError
    from encoder_engine.vectors.hybrid import check_same_rows, fuse_ranks
    from encoder_engine.vectors.stored_vectors import StoredVectors

    if options["quantized"] is not None and options["index"] is not None:
        raise click.UsageError("name --index or --quantized, not both")
    stored, top = StoredVectors(store), options["top"]
    if options["fuse"] is None:
        found = _rank(stored, queries, top, options)
    else:
        other, depth = StoredVectors(options["fuse"]), top * options["oversampling"]
        if other.manifest is None:
            raise InputError(
                f"{other.path} does not say which model made it, and --model is of {stored.path}: "
                "name a folder by --fuse, or the file first"
            )
        check_same_rows(stored, other)
        rankings = (
            _rank(stored, queries, depth, options),
            _rank(other, queries, depth, {**options, **dict.fromkeys(_OF_STORE)}),
        )
        found = [fuse_ranks(pair, top) for pair in zip(*rankings, strict=True)]
    for query, hits in zip(queries, found, strict=True):
        if options["as_json"]:
            shown = [{k: v for k, v in asdict(hit).items() if v != {}} for hit in hits]
            print_json({"query": query, "hits": shown})
        else:
            print_facts(query, {f"{rank}.": _line(hit) for rank, hit in enumerate(hits, start=1)})


def _line(hit: Hit) -> str:
    """Format a hit: the score with id or row, and a line for each kept column."""
    row = hit.row if hit.identifier is None else hit.identifier
    kept = (f"{name}: {' '.join(str(value).split()):.200}" for name, value in hit.kept.items())
    return "\n".join([f"{hit.score:.4f}  {row}", *kept])


def _rank(
    stored: StoredVectors, queries: tuple[str, ...], num_hits: int, options: dict[str, Any]
) -> list[list[Hit]]:
    """Embed queries with the model of a store, and return the hits of each in the store."""
    if stored.kind != "sparse":
        return search_stored(stored, embed_queries(stored, queries, options), num_hits, options)
    from encoder_engine.vectors.search import search_vectors

    if options["quantized"] is not None or options["index"] is not None:
        raise click.UsageError("--index and --quantized are of dense vectors")
    prompts = {name: options[name] for name in ("prompt", "prompt_name")}
    weights = _load_sparse(stored, options).encode_query(list(queries), **prompts)
    return search_vectors(stored, weights, num_hits)


def search_stored(
    stored: StoredVectors, vectors: npt.NDArray[np.float32], num_hits: int, options: dict[str, Any]
) -> list[list[Hit]]:
    """Search a store for vectors: exactly, or by the file of ``--quantized`` or ``--index``."""
    if options["quantized"] is not None:
        from encoder_engine.vectors.quantized import load_copy, search_copy

        copy = load_copy(stored, options["quantized"])
        return search_copy(stored, copy, vectors, num_hits, oversampling=options["oversampling"])
    if options["index"] is not None:
        from encoder_engine.vectors.faiss_index import search_index

        return search_index(stored, Path(options["index"]), vectors, num_hits)
    from encoder_engine.vectors.search import search_vectors

    return search_vectors(stored, vectors, num_hits)


def embed_queries(
    stored: StoredVectors, queries: Sequence[str], options: dict[str, Any]
) -> npt.NDArray[np.float32]:
    """Embed questions with the model and the options of a store, float32 [Q, D].

    Each query gets the model's prompt for queries, unless the options name another prompt.
    Warns if scores depend on vector lengths and the model was not trained for dot products.
    """
    embedder = load_for(stored, {"pooling": None, "max_seq_length": None, **options})
    recorded = {} if stored.manifest is None else stored.manifest["plan"]["options"]
    vectors: npt.NDArray[np.float32] = embedder.encode_query(
        list(queries),
        prompt=options["prompt"],
        prompt_name=options["prompt_name"],
        normalize_embeddings=recorded.get("normalized"),
        truncate_dim=recorded.get("dimension"),
    )
    warn_of_lengths(stored, embedder.stated_similarity)
    return vectors


def warn_of_lengths(stored: StoredVectors, similarity: str | None) -> None:
    """Warn if scores depend on vectors' lengths and the model was not trained for dot products."""
    import numpy as np

    length = float(np.linalg.norm(stored.first))
    # Half precision and leading features change a length of 1 by less.
    if similarity in ("dot", "dot_product") or abs(length - 1.0) < 0.01:
        return
    click.echo(
        f"warning: the stored vectors are not of length 1 (the first has {length:.3g}), so scores "
        "favour long vectors; embed with --normalize to compare directions. A model that was not "
        "trained on pairs of texts, such as a masked language model, has low recall either way",
        err=True,
    )


def load_for(stored: StoredVectors, options: dict[str, Any]) -> Embedder | StaticEmbedder:
    """Load the model that made a store's vectors, with the settings that the manifest records.

    Raises :class:`ConfigError` for another model than the manifest's, and :class:`InputError` for
    results that are not dense vectors.
    """
    from encoder_engine.embedding import Embedder, StaticEmbedder
    from encoder_engine.embedding.any_model import load_dense
    from encoder_engine.errors import InputError

    if stored.kind != "dense":
        raise InputError(
            f"{stored.path} holds {stored.kind} results; this compares vectors that embed wrote "
            "with --task dense"
        )
    manifest, name = stored.manifest, _model_name(stored, options)
    if manifest is None:
        return load_dense(
            name,
            device=options["device"],
            pooling=pooling_modes(options["pooling"]),
            max_seq_length=options["max_seq_length"],
        )
    recorded = manifest["plan"]["model"]
    if recorded.get("engine") == "static":
        table = StaticEmbedder.from_pretrained(name, rules=recorded["rules"])
        _refuse_another(stored, name, table)
        return table.with_max_length(recorded["max_seq_length"])
    embedder = Embedder.from_pretrained(
        name,
        device=options["device"],
        dtype=recorded["dtype"],
        quantization=recorded["quantization"],
        pooling=recorded["pooling"],
    )
    # First: with another model, an error about a limit or a layer would mislead.
    _refuse_another(stored, name, embedder)
    if recorded["layers"]:
        layers = tuple((number, float(weight)) for number, weight in recorded["layers"])
        embedder.recipe = replace(embedder.recipe, layers=layers)
    if recorded["max_seq_length"] is not None:
        embedder.max_seq_length = recorded["max_seq_length"]
    return embedder


def _load_sparse(stored: StoredVectors, options: dict[str, Any]) -> SparseEmbedder:
    """Load the model of a store of sparse vectors; raises an error for one not the manifest's."""
    from encoder_engine.embedding import SparseEmbedder

    name = _model_name(stored, options)
    if options["pooling"] is not None:
        raise click.UsageError("--pooling is of dense vectors")
    if stored.manifest is None:
        limit = options["max_seq_length"]
        return SparseEmbedder.from_pretrained(name, options["device"], max_seq_length=limit)
    recorded = stored.manifest["plan"]["model"]
    embedder = SparseEmbedder.from_pretrained(
        name,
        options["device"],
        recorded["dtype"],
        recorded["quantization"],
        pooling=recorded["sparse_pooling"],
    )
    _refuse_another(stored, name, embedder)
    embedder.max_seq_length = recorded["max_seq_length"]
    return embedder


def _model_name(stored: StoredVectors, options: dict[str, Any]) -> str:
    """Return the name of a store's model; raises an error for options that the manifest decides."""
    from encoder_engine.errors import InputError

    model: str | None = options["model"]
    if stored.manifest is None:
        if model is None:
            raise InputError(
                f"{stored.path} does not say which model made it; name it with --model"
            )
        return model
    for name in ("pooling", "max_seq_length"):
        if options[name] is not None:
            raise InputError(
                f"{stored.path} records how it was made; leave --{name.replace('_', '-')} out"
            )
    return model or str(stored.manifest["model"])


def _refuse_another(
    stored: StoredVectors, name: str, embedder: Embedder | StaticEmbedder | SparseEmbedder
) -> None:
    """Raise :class:`ConfigError` for a model that differs from the manifest's."""
    from encoder_engine.errors import ConfigError
    from encoder_engine.text.fingerprint import tokenizer_fingerprint

    assert stored.manifest is not None
    plan = stored.manifest["plan"]
    differing = []
    if embedder.engine.fingerprint() != plan["model"]["fingerprint"]:
        differing.append("weights")
    described = embedder.kind.describe(embedder.kind.resolve())
    if described.get("queries") != plan["model"].get("queries"):
        differing.append("models of queries")
    if tokenizer_fingerprint(embedder.tokenizer) != plan["tokenizer"]["fingerprint"]:
        differing.append("tokenizers")
    if differing:
        raise ConfigError(
            f"{name} is not the model that made {stored.path}: their {' and '.join(differing)} "
            f"differ; use that model (it was {stored.manifest['model']})"
        )
