"""``encoder-engine isotropy``: anisotropy by layer, and z-scores for an embedder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, load_subject, write_result
from encoder_engine.cli.common import check_new_folder

if TYPE_CHECKING:
    from encoder_engine.pages.report import Part


@click.command()
@option.model
@click.argument("corpus", metavar="CORPUS")
@option.number("--rows", "Sentences read of the corpus.", 600)
@option.output(
    "Write the embedder with z-scores of its vectors, by the corpus' sentences.", metavar="DIR"
)
@analysis_options
def isotropy(model: str, corpus: str, **options: Any) -> None:
    """Measure the mean cosine of words in every layer.

    The words are of CORPUS: .conllu, .conll, or a table with a column text.
    """
    if options["output"]:
        check_new_folder(options["output"])
    subject = load_subject(model, options)
    from encoder_engine.analysis.corpus import read_sentences
    from encoder_engine.analysis.isotropy import measure_isotropy, standardise_embedder
    from encoder_engine.embedding.embedder import Embedder
    from encoder_engine.pages.drawings import draw_lines
    from encoder_engine.pages.report import Drawing, Table

    sentences = read_sentences(corpus, options["rows"])
    layers = measure_isotropy(subject, sentences)
    rows = [
        (
            str(found.layer),
            f"{found.mean_cosine:.3f}",
            f"{found.standardised:.4f}",
            ", ".join(
                f"{feature} ({share:.0f}%)"
                for feature, share in zip(found.features, found.shares, strict=True)
            ),
            str(found.num_dead),
        )
        for found in layers
    ]
    lines = {
        "mean cosine": [found.mean_cosine for found in layers],
        "of z-scores": [found.standardised for found in layers],
    }
    parts: list[Part] = [
        Table(
            title="Mean cosine of different words",
            columns=("layer", "mean cosine", "of z-scores", "greatest features", "dead"),
            rows=rows,
            note="A feature's share is its part of the mean cosine. Dead features do not vary.",
        ),
        Drawing(
            title="Mean cosine by layer",
            svg=draw_lines(lines, [str(found.layer) for found in layers]),
        ),
    ]
    if options["output"]:
        embedder = Embedder.from_pretrained(model, device="cpu")
        standardised = standardise_embedder(embedder, [" ".join(words) for words in sentences])
        standardised.save_pretrained(options["output"])
    summary = (
        f"First subwords of {len(sentences)} sentences; layer 0 is the embeddings. A mean cosine "
        "of 0 says that directions are even."
    )
    values = {"model": model, "sentences": len(sentences), "layers": layers}
    write_result(f"Isotropy of {model}", summary, parts, values, options)
