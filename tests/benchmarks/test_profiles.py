"""A call's parts are all there, make up the whole, and are told so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks import bench_embedding
from benchmarks.__main__ import main
from benchmarks.case import Options
from benchmarks.profiles import (
    ATTENTION,
    ENDS,
    NORMS,
    PARTS,
    PRODUCTS,
    TOKENIZATION,
    Profile,
    read_profiles,
    time_parts,
    timed_operations,
    write_profile,
)
from benchmarks.report.profile import HEADER, profile_section, row
from encoder_engine import ops

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = Profile(
    device="abacus-2c",
    commit="0123456789ab",
    case="embedding/minilm-int8-skewed",
    threads=2,
    tokens=1000,
    seconds=2.0,
    parts={PRODUCTS: 1.0, ATTENTION: 0.4, NORMS: 0.2, ENDS: 0.1, TOKENIZATION: 0.1},
    floors={PRODUCTS: 0.5, ATTENTION: 0.1},
    ceiling=1e9,
)


def test_operations_are_timed_where_they_are_called_and_nowhere_else() -> None:
    hidden_TD, weight_D = torch.randn(5, 8), torch.ones(8)
    with timed_operations() as seconds:
        timed = ops.layer_norm(hidden_TD, weight_D, weight_D, epsilon=1e-5)
    assert list(seconds) == ["layer_norm"]
    taken = seconds["layer_norm"]
    assert taken > 0
    assert torch.equal(timed, ops.layer_norm(hidden_TD, weight_D, weight_D, epsilon=1e-5))
    assert seconds["layer_norm"] == taken


@pytest.mark.parametrize("precision", bench_embedding.PRECISIONS)
def test_the_parts_of_a_call_make_up_the_whole(precision: str) -> None:
    reason = bench_embedding.why_not("bundled")
    if reason is not None:
        pytest.skip(reason)
    kind = bench_embedding.Kind(model="minilm", precision=precision, shape="short")
    job, lengths = bench_embedding.make_job(kind, Options(threads=1, smoke=True))
    assert len(lengths) == len(job.texts)
    whole, parts = time_parts(job)
    assert set(parts) == {*PARTS.values(), TOKENIZATION}
    assert all(seconds > 0 for seconds in parts.values())
    # The whole is timed without what timing the parts costs.
    assert 0 < sum(parts.values()) < 3 * whole


def test_the_shares_of_a_line_add_up() -> None:
    told = dict(zip(HEADER, row(PROFILE), strict=True))
    assert told["at the limit"] == "30%"
    assert told["dense products beyond it"] == "25%"
    assert told["attention beyond it"] == "15%"
    assert told["the rest"] == "10%"
    assert told["products at"] == "50% of the limit"
    shares = [cell for cell in told.values() if cell.endswith("%")]
    assert sum(int(share.removesuffix("%")) for share in shares) == 100
    assert "Where the time goes" in profile_section([PROFILE]).title


def test_a_profile_replaces_the_one_of_its_case(tmp_path: Path) -> None:
    other = dataclasses.replace(PROFILE, case="embedding/minilm-float32-skewed")
    elsewhere = dataclasses.replace(PROFILE, device="slate-4c")
    newer = dataclasses.replace(PROFILE, seconds=1.5)
    for profile in (PROFILE, other, elsewhere, newer):
        write_profile(profile, tmp_path)
    assert list(read_profiles(tmp_path)) == [other, newer, elsewhere]


def test_what_is_no_embedding_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "layer_norm/forward"]) == 2
    assert "is no embedding case" in capsys.readouterr().err
