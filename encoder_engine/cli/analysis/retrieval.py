"""``encoder-engine retrieval``: scores how well an embedder finds translations and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, check_page, write_result

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder, StaticEmbedder
    from encoder_engine.pages.report import Table


@click.command()
@option.model
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--translations", metavar="A,B", help="The columns of texts and translations.")
@click.option(
    "--group-column",
    "group",
    metavar="COLUMN",
    help="With --translations: scored apart, as languages.",
)
@click.option("--groups", metavar="A,B", help="The groups that are scored.  [default: all]")
@click.option("--header", help="The columns of files without a header, separated by commas.")
@option.number("--rows", "Pairs of each group.  [default: all]")
@option.value("--query-column", "The column of queries.", "query", to="query")
@option.value("--document-column", "That of candidates.", "document", to="document")
@option.value("--label-column", "That of their relevance.", "label", to="label")
@analysis_options
def retrieval(model: str, files: tuple[str, ...], **options: Any) -> None:
    """Score how an embedder finds answers or translations.

    DATA are candidates of queries, or with --translations pairs. Candidates: a row is a query, a
    document and its relevance; each query ranks its own documents. Translations: each text looks
    for its translation among all, both ways.
    """
    check_page(options)
    for name in ("group-column", "groups", "header", "rows"):
        if options["translations"] is None and options[name.removesuffix("-column")] is not None:
            raise click.UsageError(
                f"--{name} is of translations; name --translations, or leave it out"
            )
    if options["groups"] is not None and options["group"] is None:
        raise click.UsageError("--groups names values of a column; name it by --group-column")
    from encoder_engine.embedding.any_model import load_dense

    embedder = load_dense(model, device=options["device"])
    if options["translations"]:
        table, values = _translations(embedder, files, options)
    else:
        table, values = _candidates(embedder, files, options)
    summary = f"{', '.join(files)}, by the cosine of vectors."
    title = f"Retrieval by {model}"
    write_result(title, summary, [table], {"model": model, **values}, options)


def _translations(
    embedder: Embedder | StaticEmbedder, files: tuple[str, ...], options: dict[str, Any]
) -> tuple[Table, dict[str, Any]]:
    from encoder_engine.analysis.retrieval import read_translations, score_translations
    from encoder_engine.pages.report import Table

    columns = options["translations"].split(",")
    if len(columns) != 2:
        raise click.BadParameter("expected two columns, such as text,translation")
    header = options["header"].split(",") if options["header"] else ()
    pairs = read_translations(
        files, (columns[0], columns[1]), group=options["group"], header=header, most=options["rows"]
    )
    wanted = options["groups"].split(",") if options["groups"] else list(pairs)
    missing = [name for name in wanted if name not in pairs]
    if missing:
        raise click.BadParameter(f"no group {missing[0]!r}; there are {', '.join(pairs)}")
    found = {name: score_translations(embedder.encode, pairs[name]) for name in wanted}
    table = Table(
        title="The nearest text is the translation, percent (P@1)",
        columns=("group", "pairs", "forward", "backward", "margin, forward", "backward"),
        rows=[
            (
                name or "all",
                str(one.num_pairs),
                *(
                    f"{part.mean:.1f} ({part.low:.1f}-{part.high:.1f})"
                    for part in (
                        *(one.forward, one.backward),
                        *(one.margin_forward, one.margin_backward),
                    )
                ),
            )
            for name, one in found.items()
        ],
        note=f"Forward: {columns[0]} to {columns[1]}. Intervals are 95% bootstraps over pairs.",
    )
    return table, {"translations": found}


def _candidates(
    embedder: Embedder | StaticEmbedder, files: tuple[str, ...], options: dict[str, Any]
) -> tuple[Table, dict[str, Any]]:
    from encoder_engine.analysis.retrieval import read_candidates, score_candidates
    from encoder_engine.pages.report import Table

    queries = read_candidates(
        files, query=options["query"], document=options["document"], label=options["label"]
    )
    scores = score_candidates(embedder.encode_query, embedder.encode_document, queries)
    kinds = ("with a relevant document", "with both kinds")
    shown = [
        (
            kind,
            f"{one.num_queries} of {len(queries)}",
            *(
                f"{100.0 * share:.1f}"
                for share in (one.mean_average_precision, one.mean_reciprocal_rank, one.ndcg)
            ),
        )
        for kind, one in zip(kinds, scores, strict=True)
    ]
    table = Table(
        title="Ranking of each query's documents, percent",
        columns=("queries", "scored", "MAP", "MRR", "nDCG@10"),
        rows=shown,
        note="A ranking of relevant documents alone cannot be wrong: the second row has none.",
    )
    return table, {"ranking": dict(zip(("relevant", "both"), scores, strict=True))}
