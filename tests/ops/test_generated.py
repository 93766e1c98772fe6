"""Cases drawn of every operation are within the budget, and one that is not is found and shrunk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from encoder_engine import ops
from tests.ops.generated import Case, draw_case, failure, hold_to_budget, shrink, turns
from tests.ops.trials import TRIALS
from tests.selection import unless

# A sample; python -m tests.ops.generated draws as many as it is asked for.
NUM_CASES = 5
TURNS = turns(sorted(TRIALS), ["triton", "native", "aten"])


def test_every_operation_is_drawn() -> None:
    assert set(TRIALS) == set(ops.operations())


@pytest.mark.parametrize(("operation", "by"), TURNS)
def test_drawn_cases_are_within_budget(operation: str, by: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for number in range(NUM_CASES):
        case = draw_case(operation, by, f"sample {number}", device=device)
        try:
            hold_to_budget(case)
        except AssertionError as error:
            raise AssertionError(f"--case '{case}': {error}") from error


def drops_nothing(operation: str, by: str) -> str | None:
    drops = "dropout" in TRIALS[operation][0] and by != "native"
    return None if drops else f"{operation} by {by} drops nothing"


@unless(drops_nothing)
@pytest.mark.parametrize(("operation", "by"), TURNS)
def test_backward_drops_what_forward_dropped(operation: str, by: str) -> None:
    space = TRIALS[operation][0]
    options = {option: choices[0] for option, choices in space.items()}
    options |= {"dropout": 0.3, "rows": 33, "width": 40}
    if "lengths" in space:
        options |= {"lengths": [16, 0, 7], "window": None}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    case = Case(operation=operation, by=by, dtype="float32", seed=3, options=options, device=device)
    assert hold_to_budget(case)


def test_the_slope_of_gelu_keeps_its_digits_where_it_is_nearly_one() -> None:
    if ("bias_gelu", "triton") not in TURNS:
        pytest.skip("the kernels cannot run here")
    options = {"rows": 2, "width": 17, "approximate": "tanh", "bias": False}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # A drawn case: p (1 - p) had cancelled at 4.54.
    case = Case(
        operation="bias_gelu",
        by="triton",
        dtype="float32",
        seed=985585,
        options=options,
        device=device,
    )
    assert hold_to_budget(case)


def test_a_name_always_draws_the_same_case() -> None:
    assert draw_case("pooling", "aten", "7 3") == draw_case("pooling", "aten", "7 3")
    assert draw_case("pooling", "aten", "7 3") != draw_case("pooling", "aten", "7 4")


def test_a_wrong_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    from encoder_engine.ops.aten import pooling as module

    right = module._pool

    def wrong(hidden: torch.Tensor, sequences: object, mode: str) -> torch.Tensor:
        pooled: torch.Tensor = right(hidden, sequences, mode)  # type: ignore[arg-type]
        return pooled * 1.01 if mode == "mean" and len(hidden) > 15 else pooled

    monkeypatch.setattr(module, "_pool", wrong)
    options = {"lengths": [2, 33, 3, 17], "width": 16, "mode": "mean", "normalize": False}
    case = Case(
        operation="pooling", by="aten", dtype="float64", seed=1, options=options | {"ties": False}
    )
    assert "exceeds the budget" in str(failure(case))
    small = shrink(case, lambda simpler: failure(simpler) is not None)
    assert small.options["lengths"] == [16]
    assert small.options["width"] == 1
    assert failure(replace(small, options=small.options | {"mode": "max"})) is None
