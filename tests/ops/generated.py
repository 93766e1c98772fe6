"""Holds operations to the budget on cases drawn from a seed: ``python -m tests.ops.generated``.

``--cases 2000 --seed 7`` draws them in turn of every operation and every implementation that is
here, ``--op`` and ``--by`` of those named. A case that fails is made as small as it stays failing,
and printed; ``--case`` takes what was printed and runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

# Before Triton is imported: without a GPU it interprets its kernels.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from encoder_engine import ops
from encoder_engine.errors import ImplementationError
from tests.ops.cases import MATRIX_PRODUCTS, implementations
from tests.ops.compare import compare, compare_outputs
from tests.ops.trial import Draw
from tests.ops.trials import TRIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DTYPES = ("float32", "float16", "bfloat16", "float64")
MOST_SEQUENCES = 5
# Of the gradients of plain PyTorch, whose error sets the budget.
WEIGHTINGS = 16
# Draws until one is taken: an implementation may refuse types or options.
MOST_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call: which operation, by whom, in which type, with what."""

    operation: str
    by: str
    dtype: str
    seed: int
    options: dict[str, Any]
    device: str = "cpu"

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def draw_case(operation: str, by: str, name: str, *, device: str = "cpu") -> Case:
    """Draw a case; the same name gives the same one."""
    chance = random.Random(f"{operation} {by} {name}")
    dtypes = list(DTYPES)
    if by == "triton":
        dtypes.remove("float64")
        # Triton's interpreter computes tl.dot of bfloat16 wrongly.
        if device == "cpu" and operation in MATRIX_PRODUCTS:
            dtypes.remove("bfloat16")
    options: dict[str, Any] = {}
    for option, choices in TRIALS[operation][0].items():
        options[option] = chance.choice(choices)
        if option == "lengths":
            options[option] = chance.choices(choices, k=chance.randint(0, MOST_SEQUENCES))
    return Case(
        operation=operation,
        by=by,
        dtype=chance.choice(dtypes),
        seed=chance.randrange(10**6),
        options=options,
        device=device,
    )


def hold_to_budget(case: Case) -> bool:
    """Hold a case to the budget; say whether the implementation takes it.

    One that computes no gradients is held to it by its outputs.
    """
    draw = Draw(
        options=case.options,
        dtype=getattr(torch, case.dtype),
        device=case.device,
        seed=case.seed,
        by=case.by,
    )
    for grad in (True, False):
        try:
            with torch.set_grad_enabled(grad):
                trial = TRIALS[case.operation][1](draw)
                if grad and not trial.differentiable:
                    continue
                truth = trial.truth or trial.run("reference")
                functions = trial.run(case.by), trial.eager, truth
                if grad:
                    compare(
                        *functions,
                        trial.inputs,
                        terms=trial.terms,
                        gradient_size=trial.gradient_size,
                        weightings=WEIGHTINGS,
                    )
                else:
                    compare_outputs(
                        *functions, trial.inputs, terms=trial.terms, output_size=trial.output_size
                    )
        except ImplementationError:
            continue
        return True
    return False


def failure(case: Case) -> str | None:
    """Say what is wrong with a case, or None."""
    try:
        hold_to_budget(case)
    # Whatever a kernel raises is what is looked for.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return the simplest case that still fails, one option after another."""
    for simpler in _simpler(case):
        if fails(simpler):
            return shrink(simpler, fails)
    return case


def _simpler(case: Case) -> Iterator[Case]:
    for option, choices in TRIALS[case.operation][0].items():
        value = case.options[option]
        values: list[Any] = list(choices[: choices.index(value)]) if option != "lengths" else []
        if option == "lengths":
            for place, length in enumerate(value):
                rest = (value[:place], value[place + 1 :])
                values.append([*rest[0], *rest[1]])
                shorter = [n for n in choices if n < length]
                values += [[*rest[0], n, *rest[1]] for n in shorter]
        for simpler in values:
            yield replace(case, options=case.options | {option: simpler})


def turns(operations: list[str], names: list[str]) -> list[tuple[str, str]]:
    """List who computes what, as far as it is here."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = []
    for operation, name in product(operations, names):
        if name in implementations(operation):
            operator = ops.find_operation(operation)
            facts = operator.facts(device=device)
            if (name, None) in operator.explain(facts, named=True):
                found.append((operation, name))
    return found


def main() -> int:
    """Draw cases, hold them to the budget, and count."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.ops.generated")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", action="append", choices=sorted(TRIALS))
    parser.add_argument("--by", action="append", choices=["triton", "native", "aten"])
    parser.add_argument("--case", type=json.loads)
    given = parser.parse_args()
    if given.case:
        wrong = failure(Case(**given.case))
        sys.stdout.write(f"{wrong or 'within the budget'}\n")
        return int(wrong is not None)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = turns(given.op or sorted(TRIALS), given.by or ["triton", "native", "aten"])
    if not found:
        parser.error("none of these implementations is here")
    held: Counter[str] = Counter()
    for number in range(given.cases):
        operation, by = found[number % len(found)]
        for attempt in range(MOST_ATTEMPTS):
            case = draw_case(operation, by, f"{given.seed} {number} {attempt}", device=device)
            try:
                taken = hold_to_budget(case)
            # Whatever a kernel raises is what is looked for.
            except Exception:
                small = shrink(case, lambda simpler: failure(simpler) is not None)
                sys.stdout.write(f"seed {given.seed}, case {number}: {case}\n")
                sys.stdout.write(f"{failure(small)}\n--case '{small}'\n")
                return 1
            if taken:
                held[f"{operation} by {by}"] += 1
                break
    for name, count in sorted(held.items()):
        sys.stdout.write(f"{count:6} {name}\n")
    sys.stdout.write(f"seed {given.seed}: {held.total()} cases within the budget\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
