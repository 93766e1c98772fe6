"""``encoder-engine mine-negatives``: finds hard negatives for question-answer pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts
from encoder_engine.cli.search import embed_queries
from encoder_engine.cli.stores.pairs import FORMATS, known_rows, read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.vectors.mining import MinedNegatives


@click.command("mine-negatives")
@click.argument("store", metavar="STORE")
@click.argument("pairs", nargs=-1, required=True, metavar="PAIRS...")
@option.output("A .jsonl or .parquet file.", required=True, type=option.PATH)
@option.queries
@option.value("--query-column", "Of the questions.", "query", to="column")
@option.value("--positive-column", "Of the answers.", "positive", to="pair_column")
@option.choice("--input-format", FORMATS, "Of PAIRS.")
@option.number("--negatives", "Of each question.", 3)
@click.option("--first-rank", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--last-rank", type=click.IntRange(min=1), default=100, show_default=True)
@option.value(
    "--margin",
    "A negative scores at least this share less than the worst answer.",
    0.05,
    kind=click.FloatRange(min=0, max=1, max_open=True),
)
@option.overwrite
def mine_negatives(store: str, pairs: tuple[str, ...], output: Path, **options: Any) -> None:
    """Find documents near questions that do not answer them.

    The questions are of PAIRS, the documents of STORE. STORE is a folder that embed wrote of the
    documents, whose texts are read again. PAIRS are files with a question and an answer in each
    row; an answer is found in STORE by its text. OUTPUT gets a line for each question: query,
    positives and negatives. Known answers, documents of the same text, and those that score as high
    as an answer are left out, and counted.
    """
    from encoder_engine.data.row_files import check_row_file, write_rows
    from encoder_engine.files import check_apart
    from encoder_engine.vectors.mining import MiningOptions
    from encoder_engine.vectors.mining import mine_negatives as mine
    from encoder_engine.vectors.stored_vectors import StoredVectors

    check_row_file(output, overwrite=options["overwrite"])
    check_apart([output], [Path(name) for name in pairs])
    stored = StoredVectors(store)
    settings = MiningOptions(
        num_negatives=options["negatives"],
        rank_range=(options["first_rank"], options["last_rank"]),
        relative_margin=options["margin"],
    )
    answers = read_pairs(pairs, options)
    documents, known = known_rows(stored, answers)
    queries = [query for query, rows in known.items() if rows]
    vectors = embed_queries(stored, queries, options)
    mined = mine(
        stored,
        vectors,
        [known[query] for query in queries],
        settings,
        query_texts=queries,
        texts_of=lambda rows: {row: documents[row] for row in rows},
    )
    rows = _rows(queries, known, documents, mined)
    write_rows(output, rows, overwrite=options["overwrite"])
    print_facts("Done", _facts(mined, len(answers), len(queries), output))


def _rows(
    queries: Sequence[str],
    known: dict[str, list[int]],
    documents: dict[int, str],
    mined: MinedNegatives,
) -> Iterator[dict[str, Any]]:
    for query, rows, scores in zip(queries, mined.rows, mined.scores, strict=True):
        yield {
            "query": query,
            "positives": list(dict.fromkeys(documents[row] for row in known[query])),
            "negatives": [documents[row] for row in rows],
            "rows": rows,
            "scores": [round(score, 6) for score in scores],
        }


def _facts(mined: MinedNegatives, num_all: int, num_found: int, output: Path) -> dict[str, str]:
    return {
        "questions": count(num_found),
        "without an answer in the store": count(num_all - num_found),
        "negatives": count(sum(map(len, mined.rows))),
        "left out, known answers": count(mined.num_positives),
        "left out, equal texts": count(mined.num_equal_texts),
        "left out, too near": count(mined.num_too_near),
        "questions with fewer than requested": count(mined.num_short),
        "output": str(output),
    }
