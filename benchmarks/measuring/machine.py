"""Describes the machine, source and versions of a result, without any local path."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.cli.checks.machine import installed_version, machine_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[2]
# What the measured code is built from.
_SOURCES = ("encoder_engine", "kernels", "csrc")
_SOURCE_SUFFIXES = {".py", ".cpp", ".h"}


@dataclass(frozen=True, kw_only=True)
class Device:
    """A processor or GPU: ``name`` in the maker's words; ``slug`` names the file of its results."""

    slug: str
    name: str
    cores: int
    memory_gib: float | None = None
    instruction_sets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit checked out; ``dirty``: whether tracked files differ from it, None without git.

    ``source``: a hash of the source files as they are.
    """

    name: str
    dirty: bool | None
    source: str


def find_device(kind: str) -> Device:
    """Describe the first CUDA device (``kind`` "cuda"), or else the processor."""
    facts = machine_facts()
    cores = facts["usable_cores"] or 1
    if kind == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        memory_gib = round(properties.total_memory / 2**30, 1)
        name = properties.name
        return Device(slug=slug(name), name=name, cores=cores, memory_gib=memory_gib)
    memory = facts["memory_bytes"]
    sets = tuple(facts["instruction_sets"] or ())
    name = name_processor(facts["cpu"], sets)
    return Device(
        slug=f"{slug(name)}-{cores}c",
        name=name,
        cores=cores,
        memory_gib=None if memory is None else round(memory / 2**30, 1),
        instruction_sets=sets,
    )


def name_processor(name: str, instruction_sets: Sequence[str]) -> str:
    """Name a processor, and AVX2 where it is the widest: a hypervisor often hides the model."""
    narrow = "avx2" in instruction_sets and "avx512f" not in instruction_sets
    return f"{name} with AVX2" if narrow else name


def slug(name: str) -> str:
    """Shorten a maker's name to words and hyphens: ``amd-epyc``, ``nvidia-h200``."""
    plain = re.sub(r"\((?:R|TM|C)\)|@.*|\b(?:CPU|Processor|\d+-Core|with)\b", " ", name, flags=re.I)
    return "-".join(re.findall(r"[a-z0-9]+", plain.lower())) or "unknown"


def find_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the installed versions of Python, torch, triton, NumPy and ``libraries``."""
    versions = {"python": platform.python_version()}
    for name in dict.fromkeys(("torch", "triton", "numpy", *libraries)):
        version = installed_version(name)
        if version is not None:
            versions[name] = version
    return versions


def find_commit() -> Commit:
    """Return the commit checked out, whether files were changed, and a hash of the sources."""
    name = _git("rev-parse", "--short=12", "HEAD")
    changes = _git("status", "--porcelain", "--", *_SOURCES)
    return Commit(
        name=name or "unknown",
        dirty=None if changes is None else bool(changes),
        source=_hash_sources(),
    )


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _hash_sources() -> str:
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _SOURCE_SUFFIXES and path.is_file():
                digest.update(path.relative_to(ROOT).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
