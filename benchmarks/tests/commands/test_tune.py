"""Any launch shape gives right results; a pinned one is used, and only while it is."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from benchmarks.commands import tune
from benchmarks.measuring.case import Options
from benchmarks.measuring.measure import measure

pytest.importorskip("triton")

from encoder_engine.kernels.attention.config import Extras, choose_launches
from encoder_engine.kernels.common.pinned import pin

KERNELS = sorted(tune.SEARCHES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_tried_shape_passes_the_gate(kernel: str) -> None:
    case = tune.make_case(kernel, None, Options(smoke=True))
    found = measure(case, threads=1, rounds=1, smoke=True)
    assert [m.status for m in found] == ["measured"] * 3, [m.reason for m in found]
    assert found[0].candidate == tune.TABLE
    assert len(tune.summary(found)) == 5


def test_a_pinned_shape_is_used_until_the_end() -> None:
    shape = tune.SEARCHES["attention_query"].smallest[0]
    before = choose_launches(64, itemsize=2, extras=Extras())
    with pin(attention_query=shape):
        assert choose_launches(64, itemsize=2, extras=Extras()) == before._replace(query=shape)
    assert choose_launches(64, itemsize=2, extras=Extras()) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_timed() -> None:
    ran = CliRunner().invoke(tune.main, ["attention_forward"])
    assert ran.exit_code == 1
    assert "no CUDA device" in ran.output
