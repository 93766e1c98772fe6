"""``encoder-engine attention``: draws the attention weights between a text's words as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, load_subject, print_table
from encoder_engine.cli.common import print_json, write_page

if TYPE_CHECKING:
    from encoder_engine.analysis.text_attention import TextAttention

# Weights of each head that the terminal shows.
SHOWN = 3


@click.command()
@option.model
@click.argument("text", metavar="TEXT")
@option.number("--top", "Weights of each word; fewer where the page would pass 1 MB.", 5)
@click.option("--layers", help="Layers from 0, such as 0,5.  [default: all]")
@analysis_options
def attention(model: str, text: str, **options: Any) -> None:
    """Show which words of TEXT each attention head connects.

    The page has a thumbnail of each head, and lines between the words of the one that is chosen.
    """
    try:
        chosen = options["layers"] and [int(layer) for layer in options["layers"].split(",")]
    except ValueError:
        raise click.BadParameter("expected numbers, such as 0,5", param_hint="--layers") from None
    subject = load_subject(model, options)
    from encoder_engine.analysis.text_attention import measure_attention, render_attention

    found = measure_attention(subject, text, top_k=options["top"], layers=chosen)
    if options["html"]:
        page = render_attention(found, f"Attention of {model}")
        write_page(options["html"], page, overwrite=options["overwrite"])
    if options["as_json"]:
        print_json({"model": model, "words": found.words, "heads": _values(found)})
        return
    print_table(f"Attention of {model}", [("head", "greatest weights"), *_rows(found)])


def _values(found: TextAttention) -> list[dict[str, Any]]:
    weights = found.weights
    return [
        {"layer": layer, "head": head, "keys": keys, "weights": (shares / 255.0).round(4).tolist()}
        for (layer, head), keys, shares in zip(
            weights.heads, weights.keys.tolist(), weights.shares, strict=True
        )
    ]


def _rows(found: TextAttention) -> list[tuple[str, str]]:
    """Return a table row for each head: its greatest weights between different words."""
    rows = []
    for (layer, head), keys, shares in zip(*found.weights[:1], *found.weights[2:], strict=True):
        ranked = sorted(
            (
                (int(share), query, key)
                for query in range(len(keys))
                for key, share in zip(keys[query].tolist(), shares[query], strict=True)
                if key != query
            ),
            reverse=True,
        )
        named = (
            f"{found.words[query]} > {found.words[key]} {share / 2.55:.0f}%"
            for share, query, key in ranked[:SHOWN]
        )
        rows.append((f"{layer}.{head}", ", ".join(named)))
    return rows
