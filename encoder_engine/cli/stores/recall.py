"""``encoder-engine recall``: measures how often a search finds the answers of questions."""

from __future__ import annotations

from typing import Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts, print_json
from encoder_engine.cli.search import embed_queries, search_stored
from encoder_engine.cli.stores.pairs import FORMATS, known_rows, read_pairs


@click.command()
@click.argument("store", metavar="STORE")
@click.argument("pairs", nargs=-1, required=True, metavar="PAIRS...")
@option.queries
@option.value("--query-column", "Of the questions.", "query", to="column")
@option.value("--positive-column", "Of the answers.", "positive", to="pair_column")
@option.choice("--input-format", FORMATS, "Of PAIRS.")
@click.option(
    "--at",
    "depths",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 10, 100),
    show_default=True,
    help="Count answers among this many first results; repeatable.",
)
@option.copies
@option.value(
    "--scale",
    "The factor of similarities in the loss, as in finetune embedding.",
    20.0,
    kind=click.FloatRange(min=0, min_open=True),
)
@click.option("--json", "as_json", is_flag=True, help="Print the scores as one line of JSON.")
def recall(store: str, pairs: tuple[str, ...], **options: Any) -> None:
    """Measure how often a search of STORE finds known answers.

    The questions of PAIRS are searched. STORE is a folder of documents that embed wrote. Their
    texts are read again from the files that were embedded; an answer is found by its text. Prints
    recall@k, the mean reciprocal rank within the largest k, and the retrieval loss: the
    cross-entropy of the answers among all documents. The search is exact, or approximate with
    --index or --quantized. Questions without an answer in STORE are counted, but not scored.
    """
    from encoder_engine.errors import InputError
    from encoder_engine.vectors.recall import retrieval_loss, score_hits
    from encoder_engine.vectors.stored_vectors import StoredVectors

    if options["index"] is not None and options["quantized"] is not None:
        raise click.UsageError("name --index or --quantized, not both")
    depths = sorted(set(options["depths"]))
    stored = StoredVectors(store)
    answers = read_pairs(pairs, options)
    _, known = known_rows(stored, answers)
    answered = {query: rows for query, rows in known.items() if rows}
    if not answered:
        raise InputError(
            f"none of the answers to {count(len(answers))} questions is a text of {store}; name "
            "the column of the answers by --positive-column, or embed the answers' documents"
        )
    vectors = embed_queries(stored, list(answered), options)
    found = search_stored(stored, vectors, depths[-1], options)
    rows = list(answered.values())
    scores = score_hits(found, rows, depths)
    loss = retrieval_loss(stored, vectors, rows, scale=options["scale"])
    if options["as_json"]:
        counts = {"questions": len(answered), "without_answer": len(answers) - len(answered)}
        print_json({**counts, "documents": stored.rows, **scores, "loss": loss})
        return
    facts = {
        "questions": count(len(answered)),
        "without an answer in the store": count(len(answers) - len(answered)),
        "documents": count(stored.rows),
        **{name: f"{score:.2f}" for name, score in scores.items()},
        "retrieval loss": f"{loss:.4f}",
    }
    print_facts("Done", facts)
