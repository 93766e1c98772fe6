"""Results survive the file, name who was skipped, and hold no trace of the machine's folders."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, get_args

import pytest

from benchmarks.measuring.machine import Device, find_commit, find_device, name_processor, slug
from benchmarks.measuring.measure import Status, measure
from benchmarks.records import results as records
from benchmarks.tests import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.records.results import Result

DEVICE = Device(slug="abacus-2c", name="Abacus", cores=2)


def some_results() -> list[Result]:
    case = fakes.case(
        fakes.candidate("ours", role="ours"),
        fakes.candidate("peer"),
        fakes.candidate("wrong", lambda: 41),
        fakes.candidate("absent", unavailable="absent is not installed"),
    )
    return records.make_results(case, measure(case, threads=2), device=DEVICE, threads=2)


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    first, second = some_results(), some_results()
    path = records.append(first, tmp_path)
    before = path.read_bytes()
    assert path.name == "abacus-2c.jsonl"
    records.append(second, tmp_path)
    assert path.read_bytes().startswith(before)
    assert list(records.read(tmp_path)) == first + second
    assert records.latest_runs([*first, *second])[-1] == second


def test_a_line_holds_the_figures_of_its_candidate() -> None:
    ours, peer, wrong, absent = some_results()
    assert ours.rounds == len(ours.samples_ms) == 5
    assert ours.p20_ms is not None
    assert ours.p50_ms is not None
    assert ours.p80_ms is not None
    assert ours.p20_ms <= ours.p50_ms <= ours.p80_ms
    assert ours.throughput_per_s["documents"] == pytest.approx(10_000 / ours.p50_ms, rel=1e-3)
    assert peer.p50_ms is not None
    assert ours.ratio_to_best_peer == pytest.approx(peer.p50_ms / ours.p50_ms, rel=1e-3)
    assert (ours.best_peer, peer.ratio_to_best_peer) == ("peer", 1.0)
    assert ours.run == peer.run == wrong.run == absent.run
    assert (wrong.status, wrong.p50_ms, wrong.gate) == ("gate failed", None, {"found": 41.0})
    assert (absent.status, absent.reason) == ("skipped", "absent is not installed")
    assert {"python", "torch", "numpy"} <= set(ours.versions)


@pytest.mark.parametrize("line", ["not json", '{"schema": 99}', '{"schema": 1, "colour": 2}'])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = records.append(some_results(), tmp_path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"abacus-2c\.jsonl, line 5"):
        list(records.read(tmp_path))


def test_recorded_results_are_readable_and_hold_no_folder() -> None:
    for result in records.read():
        assert result.status in get_args(Status)
        text = json.dumps(dataclasses.asdict(result))
        assert not any(root in text for root in ("/home", "/root", "/usr", "/opt", "/tmp"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("AMD EPYC 9654 96-Core Processor", "amd-epyc-9654"),
        ("AMD EPYC with AVX2", "amd-epyc-avx2"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-xeon"),
        ("NVIDIA H200", "nvidia-h200"),
        ("???", "unknown"),
    ],
)
def test_a_device_is_named_by_its_make(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_processors_of_one_name_are_told_apart() -> None:
    assert name_processor("AMD EPYC", ("avx2", "fma")) == "AMD EPYC with AVX2"
    assert name_processor("AMD EPYC", ("avx2", "avx512f")) == "AMD EPYC"


def test_this_machine_and_checkout_have_names() -> None:
    device, commit = find_device("cpu"), find_commit()
    assert device.slug.endswith(f"-{device.cores}c")
    assert len(commit.source) == 12
    assert commit.name
