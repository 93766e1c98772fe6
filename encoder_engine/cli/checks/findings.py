"""Derives findings (problems, advice, notes; each with a remedy) from the facts of ``doctor``."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from encoder_engine.cli.checks.machine import num_threads

# Extras for developing the engine, whose absence is not a finding.
_DEVELOPERS = {"bench", "dev", "release"}

Level = Literal["problem", "advice", "note"]


class Finding(NamedTuple):
    """A finding and its remedy; ``level``: problem (broken), advice (speed) or note (optional)."""

    level: Level
    what: str
    mend: str


def machine_findings(machine: dict[str, Any], versions: dict[str, str | None]) -> list[Finding]:
    """Return findings about the processor, its usable cores, and the GPU."""
    found = []
    usable = machine["usable_cores"] or 1
    quota = machine["cpu_quota_cores"]
    threads = num_threads()
    if quota is not None and quota < threads:
        found.append(
            Finding(
                "advice",
                f"{threads} threads share {quota:g} cores, by the container's quota",
                f"give --threads {max(1, int(quota))}, or set OMP_NUM_THREADS",
            )
        )
    elif threads > usable:
        found.append(
            Finding(
                "advice",
                f"{threads} threads share {usable} cores",
                f"give --threads {usable}, or set OMP_NUM_THREADS",
            )
        )
    sets = machine["instruction_sets"]
    if sets is not None and "avx2" not in sets and "asimd" not in sets:
        found.append(
            Finding(
                "advice",
                "the processor shows no AVX2; CPU kernels run in their plain form",
                "use a machine with AVX2, or check what the virtual machine passes through",
            )
        )
    if machine["nvidia_driver"] and not machine["gpus"]:
        torch = versions["torch"]
        sees = "torch is not installed" if torch is None else f"torch {torch} sees no GPU"
        found.append(
            Finding(
                "advice",
                f"there is an NVIDIA driver, but {sees}",
                "install a CUDA build of torch (https://pytorch.org), or check the driver",
            )
        )
    if machine["gpus"] and versions["triton"] is None:
        found.append(
            Finding(
                "advice",
                "triton is missing, so no GPU kernel of the engine can run",
                "pip install triton",
            )
        )
    return found


def installation_findings(
    native: str | None, unbuilt: tuple[str, ...], extras: dict[str, dict[str, str | None]]
) -> list[Finding]:
    """Return findings about the native extension and the optional extras."""
    found = []
    if native is None:
        found.append(
            Finding(
                "problem",
                "the native extension is missing; there is no tokenizer without it",
                "pip install . in the checkout, or python setup.py build_ext --inplace",
            )
        )
    if unbuilt:
        found.append(
            Finding(
                "advice",
                f"the native extension was built without {', '.join(unbuilt)}, which the processor "
                f"runs; it computes by its level {native}",
                "install a wheel for this processor, or build with CMAKE_SYSTEM_PROCESSOR unset",
            )
        )
    for extra, libraries in extras.items():
        if extra in _DEVELOPERS:
            continue
        missing = [name for name, version in libraries.items() if version is None]
        if missing:
            found.append(
                Finding(
                    "note",
                    f"the optional extra {extra} lacks {', '.join(missing)}",
                    f"if you need it: pip install {' '.join(missing)}, or in the checkout: "
                    f"pip install '.[{extra}]'",
                )
            )
    return found
