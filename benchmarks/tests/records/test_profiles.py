"""A profile lists all parts of a call, and they add up to the whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.cases import embedding as bench_embedding
from benchmarks.commands.profile import time_parts, timed_operations
from benchmarks.measuring.case import Options
from benchmarks.records import results as records
from benchmarks.records.profiles import (
    ATTENTION,
    ENDS,
    FORMER_PRODUCT,
    NORMS,
    PARTS,
    PRODUCTS,
    TOKENIZATION,
    Profile,
    read_profiles,
    write_profile,
)
from benchmarks.report.profile import HEADER, profile_section, row
from encoder_engine import ops
from encoder_engine.ops.registry import Operation, operations

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = Profile(
    device="abacus-2c",
    time_utc="2026-01-02T03:04:05+00:00",
    commit="0123456789ab",
    dirty=False,
    case="embedding/minilm-int8-skewed",
    threads=2,
    tokens=1000,
    seconds=1.6,
    watched=2.0,
    parts={PRODUCTS: 1.0, ATTENTION: 0.4, NORMS: 0.2, ENDS: 0.1, TOKENIZATION: 0.1},
    floor=0.5,
    ceiling=1e9,
    other_cores=0.0,
)
needs_minilm = pytest.mark.skipif(
    bench_embedding.why_not("bundled") is not None, reason=str(bench_embedding.why_not("bundled"))
)


def norm() -> torch.Tensor:
    return ops.layer_norm(torch.arange(6.0).view(2, 3), torch.ones(3), None, epsilon=1e-5)


def test_operations_are_timed_where_they_are_called_and_nowhere_else() -> None:
    expected = norm()
    with timed_operations() as seconds:
        timed = norm()
    assert list(seconds) == ["layer_norm"]
    taken = seconds["layer_norm"]
    assert taken > 0
    assert torch.equal(timed, expected)
    norm()
    assert seconds["layer_norm"] == taken


def test_an_operation_within_another_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Operation.find

    def gelu(*_: object, **__: object) -> torch.Tensor:
        return ops.bias_gelu(torch.ones(2, 3), torch.ones(3))

    def find_gelu(self: Operation, *facts: Any, **others: Any) -> Any:
        return gelu if self.name == "layer_norm" else find(self, *facts, **others)

    monkeypatch.setattr(Operation, "find", find_gelu)
    with timed_operations() as seconds:
        norm()
        gelu()
    assert list(seconds) == ["layer_norm", "bias_gelu"]
    with timed_operations() as seconds:
        norm()
    assert list(seconds) == ["layer_norm"]


def test_every_part_is_of_operations_that_there_are() -> None:
    assert set(PARTS) - {FORMER_PRODUCT} < set(operations())


@needs_minilm
@pytest.mark.parametrize("precision", bench_embedding.PRECISIONS)
def test_the_parts_of_a_call_make_up_the_whole(precision: str) -> None:
    kind = bench_embedding.Kind(model="minilm", precision=precision, shape="short")
    job, lengths = bench_embedding.make_job(kind, Options(threads=1, smoke=True))
    assert len(lengths) == len(job.texts)
    found = time_parts(job)
    assert set(found.parts) == {*PARTS.values(), TOKENIZATION}
    assert all(seconds > 0 for seconds in found.parts.values())
    # Each part is timed within the whole, and none within another.
    assert sum(found.parts.values()) < found.watched
    assert found.vectors.shape == (len(job.texts), 384)


@pytest.mark.exhaustive
@needs_minilm
def test_a_smoke_run_of_the_command_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    assert main(["profile", "embedding/minilm-float32-short", "--smoke"]) == 0
    assert "embedding/minilm-float32-short: " in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_shares_of_a_line_add_up() -> None:
    told = dict(zip(HEADER, row(PROFILE), strict=True))
    assert told["watched"] == "1.25x"
    assert told["dense products at the limit"] == "25%"
    assert told["dense products beyond it"] == "25%"
    assert told["attention"] == "20%"
    assert told["the rest"] == "10%"
    shares = [cell for cell in told.values() if cell.endswith("%")]
    assert sum(int(share.removesuffix("%")) for share in shares) == 100
    section = profile_section([PROFILE, dataclasses.replace(PROFILE, device="slate-4c")])
    assert len(section.blocks) == 4


def test_a_profile_replaces_the_one_of_its_case_and_threads(tmp_path: Path) -> None:
    other = dataclasses.replace(PROFILE, case="embedding/minilm-float32-skewed")
    alone = dataclasses.replace(PROFILE, threads=1)
    elsewhere = dataclasses.replace(PROFILE, device="slate-4c")
    newer = dataclasses.replace(PROFILE, seconds=1.5)
    for profile in (PROFILE, other, alone, elsewhere, newer):
        write_profile(profile, tmp_path)
    assert list(read_profiles(tmp_path)) == [other, alone, newer, elsewhere]


def test_what_is_no_embedding_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "layer_norm/forward"]) == 2
    assert "is no embedding case" in capsys.readouterr().err
