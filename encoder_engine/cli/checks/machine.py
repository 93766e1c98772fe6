"""Collects facts about the machine and the installation, for ``doctor``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.cli.common import engine_version
from encoder_engine.quota import cpu_quota

if TYPE_CHECKING:
    from types import ModuleType

DISTRIBUTION = "encoder-engine"

# Processor features by which kernels of the engine or its libraries are chosen.
_INSTRUCTION_SETS = (
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
)


def machine_facts() -> dict[str, Any]:
    """Describe processor, memory and GPUs, with sizes in bytes; None: unknown."""
    cpuinfo = _read("/proc/cpuinfo")
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _field(cpuinfo, "model name") or platform.processor() or platform.machine(),
        "instruction_sets": _instruction_sets(cpuinfo),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "cpu_quota_cores": cpu_quota(),
        "memory_bytes": _memory_bytes(),
        "gpus": _gpus(),
        "nvidia_driver": Path("/proc/driver/nvidia/version").exists(),
    }


def version_facts() -> dict[str, str | None]:
    """Return the versions of Python, the engine and its libraries; None: not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in (DISTRIBUTION, "torch", "triton", "numpy", "safetensors", "click", "rich"):
        versions[name] = installed_version(name)
    if versions[DISTRIBUTION] is None:
        versions[DISTRIBUTION] = f"{engine_version()} (not installed)"
    return versions


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None: it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def extra_facts() -> dict[str, dict[str, str | None]]:
    """Map each optional extra to its distributions and their versions, None where missing."""
    extras: dict[str, dict[str, str | None]] = {}
    for extra, requirement in _optional_requirements():
        name = re.split(r"[ \[<>=!~;]", requirement, maxsplit=1)[0]
        if name != DISTRIBUTION:
            extras.setdefault(extra, {})[name] = installed_version(name)
    return extras


def _optional_requirements() -> list[tuple[str, str]]:
    """List (extra, requirement) from the installed package's metadata or a checkout's pyproject."""
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return _checkout_requirements()
    found = []
    for line in required:
        marker = re.search(r"extra\s*==\s*[\"']([^\"']+)[\"']", line)
        if marker:
            found.append((marker.group(1), line))
    return found


def _checkout_requirements() -> list[tuple[str, str]]:
    import tomllib

    path = Path(__file__).parents[3] / "pyproject.toml"
    if not path.is_file():
        return []
    extras = tomllib.loads(path.read_text("utf-8"))["project"]["optional-dependencies"]
    return [(extra, line) for extra, lines in extras.items() for line in lines]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else None


def _instruction_sets(cpuinfo: str) -> list[str] | None:
    flags = _field(cpuinfo, "flags") or _field(cpuinfo, "Features")
    if flags is None:
        return None
    present = set(flags.split())
    return [name for name in _INSTRUCTION_SETS if name in present]


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_bytes() -> int | None:
    """Return the memory of the machine or, if smaller, of the container, in bytes."""
    total = _field(_read("/proc/meminfo"), "MemTotal")
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    sizes = [int(total.split()[0]) * 1024] if total else []
    sizes += [int(limit)] if limit.isdigit() else []
    return min(sizes, default=None)


def num_threads() -> int:
    """Return the number of threads that an embedder uses on the CPU."""
    native = _extension()
    if native is not None:
        return int(native.default_threads())
    torch = import_torch()
    return (_usable_cores() or 1) if torch is None else int(torch.get_num_threads())


def native_instruction_set() -> str | None:
    """Return the instruction set that the extension chose; None: it is not built."""
    native = _extension()
    return None if native is None else str(native.instruction_set())


def missing_instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that the processor has and the extension was built without."""
    native = _extension()
    return () if native is None else tuple(native.missing_instruction_sets())


def _extension() -> ModuleType | None:
    from encoder_engine.errors import MissingExtensionError
    from encoder_engine.text.extension import extension

    try:
        return extension()
    except MissingExtensionError:
        return None


def import_torch() -> ModuleType | None:
    """Import PyTorch; None: it cannot be imported."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def _gpus() -> list[dict[str, Any]]:
    torch = import_torch()
    if torch is None or not torch.cuda.is_available():
        return []
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(
            {
                "name": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "memory_bytes": properties.total_memory,
            }
        )
    return gpus
