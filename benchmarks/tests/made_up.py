"""Made-up results of every kind, for tests of the report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from benchmarks.records.resident import Resident
from benchmarks.tests.records.test_compare import TEMPLATE

if TYPE_CHECKING:
    from benchmarks.records.results import Result

RESIDENT = Resident(
    device="abacus-2c",
    rows=4000,
    seconds=[0.5 * number for number in range(1000)],
    mib=[500.0 - 300.0 / (1 + number) for number in range(1000)],
    again_seconds=6.0,
)
AWKWARD = 'peer <b> & "co"'


def lines(case: str, ours_ms: float, peer_ms: float, **fields: Any) -> list[Result]:
    """Make a run: ours, two peers, one that is wrong and one that is not there."""
    common = dataclasses.replace(
        TEMPLATE,
        run=" ".join(map(str, (case, *fields.values()))),
        case=case,
        amounts={"documents": 10, "tokens": 100, "bytes": 10**6, "texts": 10},
        ceilings={"operations": 1e9},
        versions={"torch": "2.13.0"},
        **fields,
    )

    def one(name: str, role: str, ms: float, peak_mib: float) -> Result:
        return dataclasses.replace(
            common,
            candidate=name,
            role=role,
            p50_ms=ms,
            p20_ms=ms,
            p80_ms=ms,
            p99_ms=2 * ms,
            cpu_p50_ms=ms,
            peak_mib=peak_mib,
            peak_of="process",
            gate={"mean_cosine": 1 - ms * 1e-6, "min_cosine": 0.9999995},
            throughput_per_s={what: 1e3 * n / ms for what, n in common.amounts.items()},
            fraction_of_limit=0.1 / ms,
            best_peer=AWKWARD,
            ratio_to_best_peer=peer_ms / ms,
        )

    return [
        one("encoder-engine", "ours", ours_ms, 80.0),
        one(AWKWARD, "peer", peer_ms, 99.5),
        one("sentence-transformers", "peer", 3 * peer_ms, 1234.0),
        dataclasses.replace(
            common,
            candidate="wrong",
            role="peer",
            status="gate failed",
            reason="mean cosine is too low",
            gate={"mean_cosine": 0.9, "min_cosine": 0.5},
        ),
        dataclasses.replace(
            common, candidate="absent", role="peer", status="skipped", reason="not installed"
        ),
    ]


def some_results() -> list[Result]:
    """Make a case of every section, a loss among them, and a second machine."""
    return [
        *lines("embedding/minilm-float32-short", 0.5, 0.61),
        *lines("embedding/minilm-int8-skewed", 1.0, 0.8),
        *lines("latency/minilm-bfloat16", 5.0, 3.9),
        *lines("cold_start/minilm-float32", 900.0, 4000.0),
        *lines("drop_in/encode-skewed", 1.0, 1.7),
        *lines("pretraining/tiny", 1.0, 4.4),
        *lines("tokenizer/wordpiece-english", 1.0, 7.9, threads=1),
        *lines("tokenizer/wordpiece-english", 1.0, 5.9, isa="avx2"),
        *lines("tokenizer/xlmr-offsets", 1.0, 177.0),
        *lines("layer_norm/forward", 1.0, 1.1),
        *(line for length in (16, 128, 1024, 8192) for line in growing(length)),
        *lines("encoder/mixed", 0.3, 0.9, device="nvidia-h200", device_name="NVIDIA H200"),
    ]


def growing(length: int) -> list[Result]:
    """Make a run at a length, where a peer has no memory for the longest."""
    ours, peer, *_ = lines(f"growth/length-{length}", 0.1 * length, 0.01 * length**2)
    results = [
        dataclasses.replace(
            r,
            peak_of="call",
            samples_ms=[r.p50_ms or 0.0] * 5,
            amounts={"sequences": 1, "tokens": length},
        )
        for r in (ours, peer)
    ]
    if length > 1024:
        results[1] = dataclasses.replace(
            results[1], p50_ms=None, status="failed", reason="it needs more than 8 GiB"
        )
    return results
