"""Compares the time of importing the embedder with those of ``import numpy`` and ``import torch``.

This module must not import torch or the engine, because their import is timed; NumPy is loaded in
a worker when it is first used.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Verdict
from benchmarks.measuring.measure import MIN_ROUNDS

if TYPE_CHECKING:
    from benchmarks.measuring.case import Call


def case_specs() -> list[CaseSpec]:
    """Return the one case, which compares the imports."""
    return [
        CaseSpec(
            name="import/package",
            summary="`from encoder_engine import Embedder` in a new process, beside NumPy, torch",
            make=make_case,
        )
    ]


def make_case(_options: Options) -> Case:
    """Make the case: each import in new processes. A module with any names passes the gate."""
    # The module of the class: its package imports nothing yet.
    ours = {"encoder-engine": "encoder_engine.embedding.embedder"}
    candidates = [
        Candidate(
            name=name,
            role="ours" if name in ours else "peer",
            build=partial(build, module),
            keep_slow=True,
        )
        for name, module in (ours | {"numpy": "numpy", "torch": "torch"}).items()
    ]
    return Case(
        candidates=tuple(candidates),
        gate=lambda names: Verdict(passed=names > 0, figures={"names": float(names)}),
        fingerprint="import of the embedder",
        seed=0,
        isolated=True,
        fresh=True,
        rounds=2 * MIN_ROUNDS,
    )


def build(module: str) -> Call:
    """Import nothing yet; the call imports the module and returns how many names it offers."""
    return lambda: len(importlib.import_module(module).__all__)
