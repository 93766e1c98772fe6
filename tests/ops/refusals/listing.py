"""Lists who refuses what in ``listing.json``.

``TRITON_INTERPRET=1 python -m tests.ops.refusals.listing`` writes it again.

Refused cases are not generated, so the list is what tells that fewer are run: an implementation
that begins to refuse a call, or stops, changes it.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from encoder_engine import ops
from encoder_engine.ops.attention import LARGEST_TRITON_HEAD
from encoder_engine.ops.embedding import WIDEST_TRITON
from tests.ops.cases import DTYPES, dtype_id, refusal

TABLE = Path(__file__).with_suffix(".json")
# Reasons of a machine, not of an implementation.
OF_THE_MACHINE = (
    "triton is not installed",
    "the extension is not built",
    "this PyTorch was built without oneDNN",
    "oneDNN multiplies no bfloat16 on this processor",
)
# What else an operation is chosen by: values that somebody refuses.
TERMS = ("window", "causal", "alibi_slopes", "relative_bias", "query_rows", "global_rows")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "dropout": (True,),
    "grouped_heads": (True,),
    "head_dim": (LARGEST_TRITON_HEAD + 1,),
    "terms": (*((term,) for term in (*TERMS, "disentangled")), ("relative_bias", "global_rows")),
    "width": (WIDEST_TRITON + 1,),
    "tiled": (True,),
    "transformed": (True,),
    "without": (("positions",), ("norm_bias",), ("norm", "norm_bias")),
}

Refusals = dict[str, dict[str, list[str]]]


def calls(operation: str) -> dict[str, dict[str, Any]]:
    """Name the calls an operation is asked about, and the facts of each.

    Every device, type and gradient with no option; every option, with and without gradients.
    """
    found = {}
    for device, dtype, grad in product(("cpu", "cuda"), map(dtype_id, DTYPES), (False, True)):
        name = f"{device} {dtype}{' with gradients' * grad}"
        found[name] = {"device": device, "dtype": dtype, "requires_grad": grad}
    known = ops.find_operation(operation).facts.__dataclass_fields__
    for option in OPTIONS.keys() & known.keys():
        for value, grad in product(OPTIONS[option], (False, True)):
            told = " and ".join(value) if isinstance(value, tuple) else value
            name = f"{option} {told}{' with gradients' * grad}"
            found[name] = {option: value, "requires_grad": grad}
    return found


def refusals(operation: str) -> Refusals:
    """Return, for each implementation, its sentences and the calls refused with each."""
    found = ops.find_operation(operation)
    table: Refusals = {}
    for implementation in found.implementations:
        for name, facts in sorted(calls(operation).items()):
            reason = refusal(operation, implementation.name, found.facts(**facts))
            if reason is not None:
                sentence = reason.removeprefix(f"{implementation.name}: ")
                table.setdefault(implementation.name, {}).setdefault(sentence, []).append(name)
    return table


def main() -> None:
    """Write the list."""
    table = {operation: refusals(operation) for operation in ops.operations()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
