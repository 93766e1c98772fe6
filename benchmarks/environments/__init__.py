"""Environments for peers whose dependencies conflict with ours: one requirements file each.

They are in the folder that ENCODER_ENGINE_PEERS names, by default ``.peers`` of the checkout.
``python -m benchmarks peers --setup`` makes them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIREMENTS = Path(__file__).parent
VARIABLE = "ENCODER_ENGINE_PEERS"
SETUP = "python -m benchmarks peers --setup"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment, made or not; ``name`` is that of its requirements file."""

    name: str
    folder: Path

    @property
    def requirements(self) -> Path:
        """The path of the requirements file, which pins the versions."""
        return REQUIREMENTS / f"{self.name}.txt"

    @property
    def python(self) -> Path:
        """The path of the environment's Python interpreter."""
        return self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    @property
    def wanted(self) -> dict[str, str]:
        """The pinned version of each distribution."""
        lines = self.requirements.read_text(encoding="utf-8").splitlines()
        pins = [line.partition("==") for line in lines if "==" in line and line[0] != "#"]
        # An extra, as in infinity-emb[server], is no part of the name.
        return {name.partition("[")[0].strip(): version.strip() for name, _, version in pins}

    @property
    def found(self) -> dict[str, str]:
        """The installed versions of the pinned distributions."""
        sites = [str(path) for path in self.folder.glob("lib/python*/site-packages")]
        sites += [str(path) for path in self.folder.glob("Lib/site-packages")]
        # A build's own label, as in 2.13.0+cpu, is no part of what is pinned.
        there = distributions(path=sites) if sites else ()
        held = {_normalize(d.name): d.version.partition("+")[0] for d in there}
        return {name: held[_normalize(name)] for name in self.wanted if _normalize(name) in held}

    def unavailable(self) -> str | None:
        """Return the reason why the environment cannot be used, or None."""
        if not self.python.is_file():
            return f"the peers' environment {self.name!r} is not set up; {SETUP}"
        found = self.found
        wrong = [name for name, version in self.wanted.items() if found.get(name) != version]
        if wrong:
            return f"the peers' environment {self.name!r} lacks {', '.join(wrong)}; {SETUP}"
        return None

    def set_up(self) -> None:
        """Make the environment, or bring it to the pinned versions."""
        if not self.python.is_file():
            venv.create(self.folder, with_pip=True)
        install = ["-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        # What PYTHONPATH names is not part of it.
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [str(self.python), *install, "-r", str(self.requirements)]
        subprocess.run(command, check=True, env=variables)


def _normalize(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it: infinity_emb is infinity-emb."""
    return re.sub(r"[-_.]+", "-", name).lower()


def peers_folder() -> Path:
    """Return the folder of the environments."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else REQUIREMENTS.parents[1] / ".peers"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of a model that cases share; ``make`` writes it where it is not there."""
    folder = peers_folder() / "models" / name
    if not folder.is_dir():
        unfinished = folder.with_name(f"{name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.replace(folder)
    return folder


def environment(name: str) -> Environment:
    """Return the environment ``name`` of this version of Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Environment(name=name, folder=peers_folder() / f"{name}-py{version}")


def environments() -> list[Environment]:
    """Return the environment of every requirements file."""
    return [environment(path.stem) for path in sorted(REQUIREMENTS.glob("*.txt"))]
