"""The command line: ``python -m benchmarks run | compare | report | ...``; exit codes 0, 1, 2."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks import registry
from benchmarks.commands.gpu import gpu, require_gpu
from benchmarks.commands.run_case import Progress, open_console, run_case
from benchmarks.environments import VARIABLE, environments
from benchmarks.measuring.case import CaseSpec, Options
from benchmarks.measuring.machine import ROOT, find_device
from benchmarks.measuring.measure import MIN_ROUNDS
from benchmarks.peers import find_peers
from benchmarks.records import results as records
from benchmarks.records.compare import compare as compare_commits
from benchmarks.registry import all_cases, choose_cases
from benchmarks.report.left_out import left_out_lines
from benchmarks.report.page import make_page
from benchmarks.report.readme import write_readme
from benchmarks.report.tables import comparison_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result


DONE, FAILED, USAGE = 0, 1, 2
README = ROOT / "README.md"
# A quick run shall end within ten minutes: the last is for the case that began before.
QUICK_MINUTES = 9.0
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure the engine beside its peers, and print recorded results."""


@cli.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option("--repeats", type=int, help=f"Rounds, at least {MIN_ROUNDS}; default: the case's.")
@click.option("--threads", type=int, help="Threads of every candidate; default: all cores.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--list", "list_only", is_flag=True, help="Name the cases and stop.")
@click.option("--smoke", is_flag=True, help="Tiny sizes, one round, nothing recorded.")
@click.option("--no-save", is_flag=True, help="Record nothing.")
@click.option("--no-compile", is_flag=True, help="Leave out peers that torch compiles.")
@click.option("--output", type=_FOLDER, help="Another folder of results.")
def run(
    cases: tuple[str, ...],
    repeats: int | None,
    threads: int | None,
    device: str,
    list_only: bool,
    smoke: bool,
    no_save: bool,
    no_compile: bool,
    output: Path | None,
) -> int:
    """Measure CASEs (default: all of the device) and append to benchmarks/results.

    Exits with 1 where one of the engine's own candidates failed or gave wrong results.
    """
    try:
        specs = choose_cases(cases, device, smoke=smoke)
    except LookupError as error:
        raise click.UsageError(str(error.args[0])) from error
    if list_only:
        for spec in specs:
            reason = spec.unavailable()
            click.echo(f"{spec.name:<28} {spec.summary}{f' [{reason}]' if reason else ''}")
        return DONE
    if repeats is not None and repeats < MIN_ROUNDS and not smoke:
        raise click.UsageError(f"--repeats {repeats}: fewer than {MIN_ROUNDS} rounds tell nothing")
    if device == "cuda":
        require_gpu()
    folder = None if smoke or no_save else output or records.FOLDER
    options = Options(device=device, smoke=smoke, compiles=not no_compile)
    lines = _run(specs, options, threads, rounds=1 if smoke else repeats, folder=folder)
    return _exit_code(lines)


@cli.command()
@click.option(
    "--output",
    "-o",
    type=_FOLDER,
    default="benchmark-report",
    show_default=True,
    help="The folder of the page and the results; what lies there is added to.",
)
@click.option("--threads", type=int, help="Threads of every candidate; default: all cores.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=QUICK_MINUTES,
    show_default=True,
    help="Begin no case later; those left are named at the end.",
)
def quick(output: Path, threads: int | None, minutes: float) -> int:
    """Measure a case of every group, in minutes, and write a page: OUTPUT/report.md.

    Runs on the CPU, on a part of the texts. Adds nothing to benchmarks/results. Ends with what was
    left out, and why.
    """
    specs = choose_cases(registry.QUICK, "cpu")
    options = Options(quick=True)
    lines = _run(specs, options, threads, rounds=None, folder=output, minutes=minutes)
    late = f"{minutes:g} minutes were over before its turn; --minutes permits more"
    chosen = [spec.name for spec in specs]
    left_out = "\n".join(left_out_lines(all_cases(), chosen, lines, otherwise=late))
    output.mkdir(parents=True, exist_ok=True)
    page = output / "report.md"
    text = f"{make_page(list(records.read(output)))}\n## Left out of this run\n\n{left_out}\n"
    page.write_text(text, "utf-8")
    click.echo(f"Left out:\n{left_out}\n{page}: what was measured")
    return _exit_code(lines)


def _run(
    specs: Sequence[CaseSpec],
    options: Options,
    threads: int | None,
    *,
    rounds: int | None,
    folder: Path | None,
    minutes: float = math.inf,
) -> list[Result]:
    """Measure cases in turn, and begin no further case once ``minutes`` have passed.

    ``threads`` None: one per core; ``folder`` None: record nothing.
    """
    # Described before this process gives up the cores it will not use.
    machine = find_device(options.device)
    options = replace(options, threads=_use_threads(threads))
    console = open_console()
    progress = Progress(console, len(specs))
    results: list[Result] = []
    for spec in specs:
        if progress.minutes > minutes:
            break
        progress.begin(spec.name)
        lines = run_case(spec, options, machine, console, rounds=rounds)
        if lines and folder is not None:
            records.append(lines, folder)
        results += lines
    return results


def _exit_code(results: Sequence[Result]) -> int:
    """Return 1 where a candidate of the engine failed or gave wrong results, else 0."""
    wrong = any(r.role == "ours" and r.status in ("failed", "gate failed") for r in results)
    return FAILED if wrong else DONE


@cli.command()
@click.argument("base")
@click.argument("head")
def compare(base: str, head: str) -> int:
    """Compare the results of two commits; exits with 1 where the engine became slower."""
    comparisons = compare_commits(list(records.read()), base, head)
    if not comparisons:
        raise click.ClickException(f"nothing was measured alike at both {base} and {head}")
    open_console().print(comparison_table(comparisons))
    slower = [f"{c.case}, {c.candidate}" for c in comparisons if c.change == "slower"]
    if slower:
        click.echo(f"slower: {'; '.join(slower)}")
    return FAILED if slower else DONE


cli.add_command(gpu)


@cli.command()
@click.option("--readme", is_flag=True, help="Renew README.md's table, and drop older runs.")
def report(*, readme: bool) -> int:
    """Write the newest results of each case as Markdown to standard output."""
    if readme:
        records.drop_superseded()
        text, runs = README.read_text("utf-8"), records.latest_runs(list(records.read()))
        README.write_text(write_readme(text, runs), "utf-8")
    else:
        click.echo(make_page(list(records.read())), nl=False)
    return DONE


@cli.command("peers")
@click.option("--setup", is_flag=True, help="Make the environments, with the pinned versions.")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
def list_peers(folder: Path | None, *, setup: bool) -> int:
    """Print which peers are available; ``--setup`` installs the environments of some.

    FOLDER is where the environments lie; later runs look there if ENCODER_ENGINE_PEERS names it,
    and otherwise in .peers of the checkout.
    """
    if folder is not None:
        os.environ[VARIABLE] = str(folder)
    if setup:
        for environment in environments():
            pins = ", ".join(map("==".join, environment.wanted.items()))
            click.echo(f"{environment.name}: installing {pins}")
            environment.set_up()
    for environment in environments():
        click.echo(f"environment {environment.name}: {environment.unavailable() or 'ready'}")
    for peer in find_peers():
        versions = ", ".join(map(" ".join, peer.versions().items()))
        click.echo(f"peer {peer.name}: {peer.available() or 'ready'} {versions}".rstrip())
    return DONE


def _use_threads(threads: int | None) -> int:
    """Restrict this process and its children to ``threads`` cores; return their number.

    None: all cores.
    """
    import torch

    affinity = hasattr(os, "sched_getaffinity")
    cores = sorted(os.sched_getaffinity(0)) if affinity else list(range(os.cpu_count() or 1))
    number = len(cores) if threads is None else threads
    if not 1 <= number <= len(cores):
        raise click.UsageError(f"--threads {number}: this machine has {len(cores)} cores for it")
    if affinity:
        os.sched_setaffinity(0, cores[:number])
    torch.set_num_threads(number)
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a failure is one line on standard error."""
    try:
        code = cli.main(arguments, prog_name="python -m benchmarks", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return USAGE if isinstance(error, click.UsageError) else FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("error: stopped; the cases finished before are recorded", err=True)
        return FAILED
    except subprocess.CalledProcessError as error:
        click.echo(f"error: a command of the set-up failed with code {error.returncode}", err=True)
        return FAILED
    except ValueError as error:
        click.echo(f"error: {error}", err=True)
        return FAILED
    return code if isinstance(code, int) else DONE


if __name__ == "__main__":
    sys.exit(main())
