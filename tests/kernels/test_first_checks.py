"""The first checks of a run on a GPU find a wrong gradient, and pass under the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops import gpu
from tests.kernels import first_checks
from tests.parts import part_of

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and not gpu.interpreted(),
    reason="neither a GPU nor TRITON_INTERPRET=1",
)
# Triton's interpreter computes tl.dot of bfloat16 wrongly.
SMALL = ["--dtype", "float16", "--lengths", "40", "1", "0", "7", "--head-dim", "16"]


@pytest.mark.parametrize("dropout", ["0", "0.3"])
def test_attention_is_held_to_what_it_dropped(dropout: str) -> None:
    assert first_checks.main([*SMALL, "--dropout", dropout]) == 0


@pytest.mark.parametrize("dropout", ["0", "0.1"])
def test_layer_norm_is_held_to_what_it_dropped(dropout: str) -> None:
    assert first_checks.main(["--norm", dropout, "--dtype", "float16"]) == 0


def test_a_wrong_gradient_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = ops.attention

    class Off(torch.autograd.Function):
        @staticmethod
        def forward(_: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: object, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * 1.1

    def wrong(query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any) -> Any:
        return right(query, Off.apply(key), *rest, **options)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(ops, "attention", wrong)
    assert first_checks.main(SMALL) == 1
    assert "gradient of key" in capsys.readouterr().out


def test_the_parts_of_the_tests_are_all_of_them() -> None:
    for number in (0, 1, 3, 10):
        parts = [range(number)[part_of(number, f"{place}/4")] for place in range(4)]
        assert [place for part in parts for place in part] == list(range(number))
