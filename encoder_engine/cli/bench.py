"""``encoder-engine bench``: runs the benchmark suite of a source checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def bench(arguments: tuple[str, ...]) -> int:
    """Measure the engine and its peers on this machine.

    Without a COMMAND a selection is measured in minutes and written to benchmark-report/. COMMAND
    is one of the suite's, such as run, compare or report; bench --help lists all.
    """
    if not (ROOT / "benchmarks" / "__main__.py").is_file():
        if {"-h", "--help"} & set(arguments):
            click.echo(click.get_current_context().get_help())
            click.echo("\n  The suite is not part of the installed package: it needs a checkout.")
            return 0
        raise click.ClickException(
            "the benchmark suite is not part of the installed package: run this in a checkout, "
            "set up by `make bench` or by `pip install -e '.[bench]' -c constraints.txt`"
        )
    # -P: do not import a folder "benchmarks" of the working directory.
    command = [sys.executable, "-P", "-m", "benchmarks", *(arguments or ("quick",))]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode
