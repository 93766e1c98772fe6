"""Functions shared by the analysis subcommands: loading the model, writing the page or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import print_json, write_page
from encoder_engine.files import check_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.analysis.subject import Subject
    from encoder_engine.pages.report import Part

__all__ = ["analysis_options", "check_page", "load_subject", "print_table", "write_result"]


analysis_options = option.together(
    click.option("--html", metavar="FILE", help="Write the page: one file, no network."),
    click.option("--overwrite", is_flag=True, help="Replace the page if it exists."),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON."),
    option.device,
)


def check_page(options: Mapping[str, Any]) -> None:
    """Raise an error, before anything is computed, for a page that exists or cannot be written."""
    if not options["html"]:
        return
    if Path(options["html"]).exists() and not options["overwrite"]:
        raise click.UsageError(f"{options['html']} exists; --overwrite replaces it")
    check_target(Path(options["html"]), overwrite=True)


def load_subject(model: str, options: Mapping[str, Any]) -> Subject:
    """Check that the page can be written, then load the model to analyse."""
    check_page(options)
    from encoder_engine.dependencies import require_torch

    require_torch("analysing a model")
    from encoder_engine.analysis.subject import Subject

    return Subject.from_pretrained(model, options["device"])


def write_result(
    title: str,
    summary: str,
    parts: Sequence[Part],
    values: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Write the HTML page if one is requested, and print the result as JSON or as tables."""
    from encoder_engine.pages.report import Table, report_page

    if options["html"]:
        page = report_page(title, summary, parts)
        write_page(options["html"], page, overwrite=options["overwrite"])
    if options["as_json"]:
        print_json(values)
        return
    click.secho(title, bold=True)
    click.echo(summary)
    for part in parts:
        if isinstance(part, Table):
            print_table(part.title, [part.columns, *part.rows])


def print_table(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print aligned rows; the first row has the columns' names."""
    click.echo(f"\n{title}")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = row
        cells = [f"{first:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        click.echo("  " + "  ".join(cells))
