"""Times README's two commands in a new clone, and measures what they install.

``python -m benchmarks front-door`` clones the last commit and runs each command in its own
environment, without pip's cache. The time of setting up depends on the package index that is
configured on this machine as much as on this project.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.measuring.machine import ROOT, find_device
from benchmarks.records import results as records
from benchmarks.records.device_records import FrontDoor, write_front_door

# What a visitor's shell does not set.
OWN = re.compile(r"PYTHONPATH|ENCODER_ENGINE_.*|OMP_.*|MKL_.*|CMAKE_ARGS")
# Megabytes of every distribution here but for those that the named ones ask for, and those that
# Python's own venv puts there.
SIZES = """
import importlib.metadata as metadata, json, re, sys
def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()
there = {plain(found.metadata["Name"]): found for found in metadata.distributions()}
def with_required(name, seen):
    if name in there and name not in seen:
        seen.add(name)
        for line in there[name].requires or ():
            if "extra ==" not in line:
                with_required(plain(re.match(r"[\\w.-]+", line)[0]), seen)
    return seen
left_out = {"pip", "setuptools"}
for name in sys.argv[1:]:
    with_required(name, left_out)
def size(found):
    paths = [path.locate() for path in found.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())
sizes = {name: size(found) / 1e6 for name, found in there.items() if name not in left_out}
print(json.dumps(sizes))
"""


def timed(command: list[str], folder: Path) -> float:
    """Run a command without our own settings, and return its seconds; say where it fails."""
    environment = {name: value for name, value in os.environ.items() if not OWN.match(name)}
    environment["PIP_NO_CACHE_DIR"] = "1"
    started = time.perf_counter()
    ran = subprocess.run(command, cwd=folder, env=environment, check=False, stdout=sys.stderr)
    if ran.returncode:
        raise click.ClickException(f"{' '.join(command)} ended with code {ran.returncode}")
    return time.perf_counter() - started


def git_head(folder: Path) -> str:
    """Name the commit that a clone is at."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def installed_sizes(python: str, *, beyond: tuple[str, ...]) -> dict[str, float]:
    """Return MB per distribution of an environment, without ``beyond`` and their dependencies."""
    command = [python, "-I", "-c", SIZES, *beyond]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes: dict[str, Any] = json.loads(found.stdout)
    return {name: round(float(size), 1) for name, size in sorted(sizes.items())}


@click.command("front-door")
@click.option("--no-save", is_flag=True, help="Record nothing.")
def front_door(*, no_save: bool) -> int:
    """Time README's two commands in a fresh clone, and measure the size of an installation."""
    with tempfile.TemporaryDirectory() as scratch:
        clone, plain = Path(scratch, "clone"), Path(scratch, "plain")
        timed(["git", "clone", "-q", str(ROOT), str(clone)], ROOT)
        commit = git_head(clone)
        python = f"PYTHON={sys.executable}"
        run_seconds = timed(["make", "run", python, "VENV=.venv-run"], clone)
        test_seconds = timed(["make", "test", python, "VENV=.venv-test"], clone)
        timed([sys.executable, "-m", "venv", str(plain)], clone)
        own = str(plain / "bin" / "python")
        timed([own, "-m", "pip", "install", "-q", "-c", "constraints.txt", "."], clone)
        sizes = installed_sizes(own, beyond=("torch", "triton"))
    found = FrontDoor(
        device=find_device("cpu").slug,
        time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        run_seconds=run_seconds,
        test_seconds=test_seconds,
        installed_mb=sizes,
    )
    by_name = ", ".join(f"{name} {size:g}" for name, size in sizes.items())
    click.echo(
        f"make run {run_seconds:.0f} s, make test {test_seconds:.0f} s; the base install "
        f"takes {sum(sizes.values()):.0f} MB: {by_name}"
    )
    if not no_save:
        write_front_door(found, records.FOLDER)
    return 0
