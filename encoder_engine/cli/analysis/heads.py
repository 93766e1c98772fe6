"""``encoder-engine heads``: statistics and kinds of attention heads."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, load_subject, write_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.analysis.head_relations import RelationScore
    from encoder_engine.analysis.heads import HeadSummary
    from encoder_engine.pages.report import Part


@click.command()
@option.model
@click.argument("corpus", metavar="CORPUS")
@option.number("--rows", "Sentences read of the corpus.", 300)
@option.number("--least", "Pairs that a relation has at least; others are not scored.", 50)
@analysis_options
def heads(model: str, corpus: str, **options: Any) -> None:
    """Describe every attention head over sentences of CORPUS.

    A CORPUS in CoNLL-U also shows the heads that find syntactic relations.
    """
    subject = load_subject(model, options)
    from encoder_engine.analysis.corpus import read_sentences
    from encoder_engine.analysis.edges import read_edges
    from encoder_engine.analysis.head_relations import points_over_offset, score_relations
    from encoder_engine.analysis.heads import kinds_of, measure_heads
    from encoder_engine.inputs.conll import plain_suffix

    found = measure_heads(subject, read_sentences(corpus, options["rows"]))
    relations: list[RelationScore] = []
    with_relations, least = plain_suffix(corpus) == ".conllu", options["least"]
    if with_relations:
        edges = read_edges(corpus, "deprel", options["rows"])
        relations = score_relations(subject, edges, least=least)
    points = points_over_offset(relations)
    kinds = [kinds_of(one, points.get((one.layer, one.head))) for one in found]
    values = {
        "model": model,
        "heads": [asdict(one) | {"kinds": names} for one, names in zip(found, kinds, strict=True)],
        "relations": relations,
    }
    summary = (
        "Means over the tokens that are not special. Positional: 90% of the maxima at one offset. "
        "Special: half of the weight on special tokens. Rare: half of the maxima on the rarest "
        "token. Broad: 90% of the entropy of even weights. Syntactic: 10 points over the best "
        "fixed offset for a relation. Layers and heads count from 0."
    )
    if with_relations:
        summary += f" {len(relations)} relations have at least {least} pairs and are scored."
    if with_relations and not relations:
        summary += " No head can be syntactic; lower --least."
    parts = _parts(found, kinds, relations)
    write_result(f"Attention heads of {model}", summary, parts, values, options)


def _parts(
    found: Sequence[HeadSummary],
    kinds: Sequence[tuple[str, ...]],
    relations: Sequence[RelationScore],
) -> list[Part]:
    from encoder_engine.pages.drawings import draw_grid
    from encoder_engine.pages.report import Drawing, Table

    layers = sorted({one.layer for one in found})
    by_layer = [[one for one in found if one.layer == layer] for layer in layers]
    columns = [str(n) for n in range(max(map(len, by_layer), default=0))]
    names = [f"layer {layer}" for layer in layers]
    drawings = [
        Drawing(
            title=title,
            svg=draw_grid(
                [[getattr(one, field) / 100.0 for one in row] for row in by_layer],
                names,
                columns,
                [
                    [f"head {one.head}: {getattr(one, field):.1f}%" for one in row]
                    for row in by_layer
                ],
            ),
        )
        for title, field in (
            ("Weight on special tokens", "special"),
            ("Maxima at the most frequent offset", "offset_share"),
            ("Entropy, of even weights", "evenness"),
        )
    ]
    rows = [
        (
            f"{one.layer}.{one.head}",
            ", ".join(names),
            f"{one.maximum:.2f}",
            f"{one.entropy:.2f}",
            f"{one.distance:.1f}",
            f"{one.offset:+d} ({one.offset_share:.1f}%)",
            f"{one.previous:.1f}",
            f"{one.itself:.1f}",
            f"{one.following:.1f}",
            f"{one.first:.1f}",
            f"{one.special:.1f}",
            f"{one.punctuation:.1f}",
        )
        for one, names in zip(found, kinds, strict=True)
    ]
    parts: list[Part] = [
        Table(
            title="Heads, weights in percent",
            columns=(
                *("head", "kinds", "maximum", "entropy", "distance", "offset of maxima"),
                *("previous", "itself", "next", "first", "special", "punctuation"),
            ),
            rows=rows,
        )
    ]
    if relations:
        parts.append(
            Table(
                title="Best head of each relation",
                columns=(
                    "relation",
                    "pairs",
                    "head",
                    "from",
                    "accuracy",
                    "best offset",
                    "its accuracy",
                ),
                rows=[
                    (
                        score.relation,
                        str(score.number),
                        f"{score.layer}.{score.head}",
                        "dependent" if score.from_dependent else "head",
                        f"{score.accuracy:.1f}",
                        f"{score.offset:+d}",
                        f"{score.offset_accuracy:.1f}",
                    )
                    for score in relations
                ],
                note="The head was chosen on these pairs.",
            )
        )
    return [*drawings, *parts]
