"""``encoder-engine accent``: measures whether a multilingual model prefers English structure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, check_page, write_result

if TYPE_CHECKING:
    from encoder_engine.metrics.intervals import Interval
    from encoder_engine.pages.report import Part


@click.command()
@option.model
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--against", metavar="MODEL", help="A monolingual model to compare with.")
@option.value("--own-column", "The column of own constructions.", "own", to="own")
@option.value(
    "--english-like-column",
    "The column of sentences of English-like structure.",
    "english_like",
    to="english_like",
)
@click.option(
    "--single-tokens", is_flag=True, help="Mask a token alone, not the rest of its word with it."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the intervals.")
@analysis_options
def accent(model: str, files: tuple[str, ...], **options: Any) -> None:
    """Measure how a multilingual model leans to English.

    Compares how likely it finds a language's own constructions and English-like ones. DATA: .jsonl,
    .tsv or .csv, each row a sentence in the language's own construction and one of English-like
    structure. Both models are masked language models.
    """
    check_page(options)
    if options["against"] is not None and _same(model, options["against"]):
        raise click.UsageError(
            f"--against names {model} again, and a model has no accent against itself; name a "
            "monolingual model"
        )
    from encoder_engine.analysis.accent import (
        compare_preferences,
        measure_preferences,
        read_constructions,
        summarise_preferences,
    )
    from encoder_engine.pages.report import Table
    from encoder_engine.prediction.mask_filler import MaskFiller

    pairs = read_constructions(files, own=options["own"], english_like=options["english_like"])
    names = [model] if options["against"] is None else [model, options["against"]]
    measured = [
        measure_preferences(
            MaskFiller.from_pretrained(name, options["device"]),
            pairs,
            within_words=not options["single_tokens"],
        )
        for name in names
    ]
    seed = options["seed"]
    found = [summarise_preferences(values, seed=seed) for values in measured]
    parts: list[Part] = [
        Table(
            title="Log-likelihood of own minus English-like sentences",
            columns=("model", "difference, nats", "each token", "own preferred, %"),
            rows=[
                (name, *(_shown(part) for part in (p.difference, p.per_token, p.own_share)))
                for name, p in zip(names, found, strict=True)
            ],
            note="Intervals are 95% bootstraps over pairs. Above 0 the own sentence is likelier.",
        )
    ]
    values: dict[str, Any] = {
        "pairs": len(pairs),
        "models": dict(zip(names, found, strict=True)),
        "accent": None,
    }
    if len(measured) == 2:
        compared = compare_preferences(*measured, seed=seed)
        values["accent"] = compared
        parts.append(
            Table(
                title="Accent",
                columns=("", "difference, nats", "each token", "p"),
                rows=[
                    (
                        "first minus second model",
                        _shown(compared.difference),
                        _shown(compared.per_token),
                        f"{compared.p_value:.4g}",
                    )
                ],
                note="Below 0 the first model leans more to the structure of English.",
            )
        )
    summary = f"{len(pairs)} pairs of {', '.join(files)}, by pseudo-log-likelihood."
    write_result(f"Accent of {model}", summary, parts, values, options)


def _same(model: str, other: str) -> bool:
    one, two = Path(model), Path(other)
    return model == other or (one.exists() and two.exists() and one.samefile(two))


def _shown(interval: Interval) -> str:
    return f"{interval.mean:.2f} ({interval.low:.2f} to {interval.high:.2f})"
