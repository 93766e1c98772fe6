"""Made-up results of every kind, for tests of records, targets and the report."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.records.results import Result

TEMPLATE = Result(
    run="r",
    time_utc="2026-11-21T00:00:00+00:00",
    commit="c",
    dirty=False,
    source="s",
    device="abacus-2c",
    device_name="Abacus",
    cores=2,
    memory_gib=None,
    instruction_sets=[],
    threads=2,
    versions={"torch": "2.13.0"},
    seed=0,
    case="fake/case",
    fingerprint="f",
    amounts={},
    candidate="ours",
    role="ours",
    status="measured",
)
AWKWARD = 'peer <b> & "co"'


def lines(case: str, ours_ms: float, peer_ms: float, **fields: Any) -> list[Result]:
    """Make a run: ours, two peers, one that is wrong and one that is not there."""
    common = dataclasses.replace(
        TEMPLATE,
        run=" ".join(map(str, (case, *fields.values()))),
        case=case,
        amounts={"documents": 10, "tokens": 100, "bytes": 10**6, "texts": 10},
        **fields,
    )

    def measured(name: str, role: str, ms: float, peak_mib: float) -> Result:
        return dataclasses.replace(
            common,
            candidate=name,
            role=role,
            p50_ms=ms,
            p20_ms=ms,
            p80_ms=ms,
            peak_mib=peak_mib,
            peak_of="process",
            gate={"min_cosine": 0.9999995},
            throughput_per_s={what: 1e3 * n / ms for what, n in common.amounts.items()},
            fraction_of_limit=0.1 / ms,
            best_peer=AWKWARD,
            ratio_to_best_peer=peer_ms / ms,
        )

    wrong = dataclasses.replace(
        common,
        candidate="wrong",
        role="peer",
        status="gate failed",
        reason="mean cosine is too low",
        gate={"min_cosine": 0.5},
    )
    return [
        measured("encoder-engine", "ours", ours_ms, 80.0),
        measured(AWKWARD, "peer", peer_ms, 99.5),
        measured("sentence-transformers", "peer", 3 * peer_ms, 1234.0),
        wrong,
        dataclasses.replace(wrong, candidate="absent", status="skipped", reason="not installed"),
    ]
