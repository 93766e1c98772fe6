"""Runs calls of the libraries of others.txt, in an environment of their own.

They ask for other versions of transformers and sentence-transformers than those tested here.
``python -m tests.libraries.others`` makes the environment with the versions of ``others.txt``, or
brings it to them. It lies beside the environments of the benchmarks: in the folder that
ENCODER_ENGINE_PEERS names, by default ``.peers`` of the checkout.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

REQUIREMENTS = Path(__file__).with_suffix(".txt")
SCRIPT = Path(__file__).with_name("their_process.py")
SETUP = "python -m tests.libraries.others"
# Installed without what they ask for: one needs an older PyTorch for its index, which is not used
# here, the other a newer transformers.
ALONE = ("pylate", "txtai")
SECONDS = 900


def environment() -> Path:
    """Return the folder of the environment; each version of Python has its own."""
    named = os.environ.get("ENCODER_ENGINE_PEERS")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (Path(named) if named else ROOT / ".peers") / f"libraries-py{version}"


def requirements() -> list[str]:
    """Read the versions that are asked for."""
    lines = REQUIREMENTS.read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def unavailable() -> str | None:
    """Return the reason why the libraries cannot be run, or None."""
    if not (environment() / "bin" / "python").is_file():
        return f"the environment of the other libraries is not set up; {SETUP}"
    sites = [str(path) for path in environment().glob("lib/python*/site-packages")]
    # A build's own label, as in 2.13.0+cpu, is no part of a version that is asked for.
    found = {f"{d.name}=={d.version.partition('+')[0]}".lower() for d in distributions(path=sites)}
    absent = [one for one in requirements() if one.lower() not in found]
    if absent:
        return f"the environment of the other libraries lacks {', '.join(absent)}; {SETUP}"
    return None


def own_variables() -> dict[str, str]:
    """Return the variables of this process without what names other packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run_theirs(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Run jobs in the environment, and return what each one's calls return.

    A job: see ``their_process.py``. Its result maps each call to the values in float32 and in
    float64. Skips the test where the environment is not there.
    """
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    python = environment() / "bin" / "python"
    ran = subprocess.run(
        [python, SCRIPT, folder / "jobs.json", folder / "results"],
        capture_output=True,
        text=True,
        env=own_variables() | {"HF_HUB_OFFLINE": "1", "FASTEMBED_CACHE_PATH": str(folder)},
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: list[dict[str, Any]] = pickle.loads((folder / "results").read_bytes())
    return found


def main() -> None:
    """Make the environment, or bring it to the versions of the requirements."""
    python = environment() / "bin" / "python"
    if not python.is_file():
        venv.create(environment(), with_pip=True)
    alone = [one for one in requirements() if one.startswith(ALONE)]
    others = [one for one in requirements() if one not in alone]
    for options in (others, ["--no-deps", *alone]):
        install = ["-m", "pip", "install", "--disable-pip-version-check", "--quiet", *options]
        subprocess.run([python, *install], check=True, env=own_variables())


if __name__ == "__main__":
    main()
