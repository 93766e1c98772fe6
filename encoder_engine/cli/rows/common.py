"""Options, inputs and summary shared by the subcommands that write training rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import count, print_facts, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from encoder_engine.inputs.records import Record


row_options = option.together(
    click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
    option.output("The .jsonl or .parquet file to write.", required=True, type=option.PATH),
    option.column,
    option.input_format,
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
    option.number("--epoch", "Another epoch makes other draws.", 0, least=0),
    option.overwrite,
    click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
)


def read_texts(inputs: tuple[str, ...], options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of the inputs."""
    return (record.values["text"] for record in read_records(inputs, options))


def read_records(inputs: tuple[str, ...], options: Mapping[str, Any]) -> Iterator[Record]:
    """Yield the texts of the inputs as records, whose errors name file and row."""
    from encoder_engine.inputs.opening import shown_name
    from encoder_engine.inputs.readers import open_inputs
    from encoder_engine.inputs.records import Record

    opened = open_inputs(list(inputs), column=options["column"], format=options["input_format"])
    place = 0
    for source in opened.sources:
        for number, row in enumerate(replace(opened, sources=(source,)), start=1):
            yield Record({"text": row.text}, shown_name(source[0]), number, place, "row")
            place += 1


def check_output(inputs: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Raise an error for an output file that is also an input."""
    from encoder_engine.files import check_apart

    check_apart([options["output"]], [Path(name) for name in inputs])


def print_written(number: int, options: Mapping[str, Any]) -> None:
    """Print the number of rows written, and the file's name."""
    if options["as_json"]:
        print_json({"rows": number, "output": str(options["output"])})
    else:
        print_facts("Done", {"rows": count(number), "output": str(options["output"])})
