"""The attention kernels at the shapes that a call would launch them with."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from tests.kernels.variant import Variant


def _attention_terms() -> dict[str, dict[str, Any]]:
    """Return the terms of a call, and what they are in the kernels' arguments."""
    import torch

    listed = torch.zeros(1)
    terms: dict[str, dict[str, Any]] = {
        "": {},
        " bias": {"bias_HR": torch.zeros(1, 257)},
        " queries": {"places": listed},
        " globals": {"window": 256, "global_places": listed},
    }
    terms[" bias globals"] = terms[" bias"] | terms[" globals"]
    terms |= {f"{name} dropout": more | {"seed": listed} for name, more in terms.items()}
    vectors = torch.zeros(512, 12, 64)
    positions = {
        "position_key_NHD": vectors,
        "position_query_NHD": vectors,
        "entries_R": torch.zeros(1023),
    }
    return terms | {
        " window": {"window": 64},
        " slopes": {"slopes_H": torch.ones(12)},
        " positions": positions,
        " positions dropout": positions | {"seed": listed},
    }


def attention_variants(target: int) -> list[Variant]:
    terms = [name for name in _attention_terms() if "positions" not in name]
    cases = [(size, 2, name) for size, name in product((64, 128), terms)]
    cases += [
        (32, 2, ""),
        (32, 2, " dropout"),
        (256, 2, ""),
        (256, 2, " bias dropout"),
        (64, 4, " bias dropout"),
        (64, 2, " positions"),
        (64, 2, " positions dropout"),
    ]
    found = _attention_variants(cases, target)
    for longest in (64, 128, 512):
        found += _attention_variants(
            [(64, 2, ""), (64, 2, " dropout"), (128, 2, "")], target, longest
        )
    if target >= 90:
        found += _specialized()
    return [*found, *_attention_of_one_row(target), *_attention_delta(), *_sum_by_number()]


def _attention_variants(
    cases: list[tuple[int, int, str]], target: int, longest: int = 0
) -> list[Variant]:
    """Return the three kernels of each (head size, bytes of an element, terms)."""
    from encoder_engine.kernels.attention.config import Longest, choose_launches

    found = []
    terms = _attention_terms()
    for head_dim, itemsize, name in cases:
        call, blocks = _attention_call(head_dim, terms[name])
        launches = choose_launches(
            head_dim,
            itemsize=itemsize,
            extras=blocks.extras(call),
            longest=Longest(longest, longest),
            hopper=target >= 90,
        )
        suffix = f"{name}{'' if itemsize == 2 else ' float32'}{f' of {longest}' if longest else ''}"
        has_globals = len(blocks.global_places) > 0
        beyond = 256 if has_globals else -1
        tail = {"HAS_GLOBALS": has_globals, "BLOCK_TAIL": launches.forward.block_tail}
        halves = (
            ("forward", launches.forward, tail),
            ("grad_query", launches.query, {"HAS_GLOBALS": has_globals}),
            ("grad_key_value", launches.key, {"LISTED": has_globals, "BEYOND": beyond}),
        )
        if launches.short is not None:
            found.append(_short_variant(call, blocks, launches.short, f"d{head_dim}{suffix}"))
        for half, launch, more in halves:
            own = blocks.constants if half == "forward" else blocks.gradient_constants
            constants = own(call) | more | launch.sizes()
            constants |= _absent_pointers(half, constants)
            block = f"tensordesc<bf16[{launch.block_keys},{head_dim}]>"
            described = dict.fromkeys(("key_rows", "value_rows"), block)
            if half == "forward" and not launch.described:
                constants |= dict.fromkeys(described)
            found.append(
                Variant(
                    module=f"attention.{half}",
                    kernel=f"_attention_{half}_kernel",
                    name=f"attention {half} d{head_dim}{suffix}",
                    constants=constants,
                    num_warps=launch.num_warps,
                    num_stages=launch.num_stages,
                    max_registers=launch.max_registers,
                    descriptors=described,
                    element="*bf16" if itemsize == 2 else "*fp32",
                )
            )
    return found


def _absent_pointers(half: str, constants: dict[str, Any]) -> dict[str, None]:
    """Return the pointers that a call passes as None, which the compiler takes for constants."""
    given = {
        "bias_pointer": constants["HAS_BIAS"],
        "slopes_pointer": constants["HAS_SLOPES"],
        "seed_pointer": constants["HAS_DROPOUT"],
    }
    if half == "grad_short":
        del given["bias_pointer"]
    else:
        names = ("c2p_pointer", "p2c_pointer", "entries_pointer")
        given |= dict.fromkeys(names, constants["POSITIONS"] > 0)
    if half == "grad_query":
        given["bias_sums_pointer"] = constants["HAS_BIAS"]
        given["ds_pointer"] = constants["POSITIONS"] > 0
    if half == "grad_key_value":
        given["bias_sums_pointer"] = constants["HAS_BIAS"] and constants["LISTED"]
        given["ds_pointer"] = constants["POSITIONS"] > 0
    return dict.fromkeys(name for name, there in given.items() if not there)


def _specialized() -> list[Variant]:
    from encoder_engine.kernels.attention.forward_specialized import MOST_STAGES

    return [
        Variant(
            module="attention.forward_specialized",
            kernel="_attention_specialized_kernel",
            name=f"attention specialized d{head_dim}",
            constants={
                "QUERY_STRIDE": 768,
                "KEY_STRIDE": 768,
                "VALUE_STRIDE": 768,
                "NUM_HEADS": 768 // head_dim,
                "GROUP": 1,
                "HEAD_DIM": head_dim,
                "BLOCK_ROWS": 128,
                "BLOCK_KEYS": 128,
            },
            num_warps=4,
            num_stages=MOST_STAGES,
        )
        for head_dim in (64, 128)
    ]


def _short_variant(call: Any, blocks: Any, launch: Any, name: str) -> Variant:
    constants = blocks.gradient_constants(call) | {"BLOCK": launch.block_keys}
    constants |= _absent_pointers("grad_short", constants)
    long = ("SUBSET", "HAS_BIAS", "POSITIONS", "ENTRIES_REACH", "NUM_ENTRIES")
    constants = {key: x for key, x in constants.items() if key not in long}
    return Variant(
        module="attention.grad_short",
        kernel="_attention_grad_short_kernel",
        name=f"attention grad_short {name}",
        constants=constants,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        max_registers=launch.max_registers,
    )


def _attention_of_one_row(target: int) -> list[Variant]:
    """Return the kernels of a call with one query row: an argument of 1 is a constant."""
    return [
        replace(
            variant,
            name=variant.name.replace("d64", "d64 one row"),
            constants=variant.constants | {"num_queries": 1},
        )
        for variant in [*_attention_variants([(64, 2, " bias")], target), *_attention_delta((64,))]
    ]


def _attention_delta(head_dims: tuple[int, ...] = (32, 64, 128)) -> list[Variant]:
    from encoder_engine.kernels.attention.backward import DELTA_ROWS

    return [
        Variant(
            module="attention.backward",
            kernel="_attention_delta_kernel",
            name=f"attention delta d{head_dim}",
            constants={
                "NUM_HEADS": 768 // head_dim,
                "HEAD_DIM": head_dim,
                "BLOCK_DIM": head_dim,
                "BLOCK_ROWS": DELTA_ROWS,
            },
            num_warps=4,
        )
        for head_dim in head_dims
    ]


def _sum_by_number() -> list[Variant]:
    """Return the kernels of DeBERTa's gradients: of rows by query, and of rows by key."""
    from encoder_engine.kernels.attention import grad_positions

    return [
        Variant(
            module="attention.grad_positions",
            kernel="_sum_by_number_kernel",
            name=f"attention sum by number of {of}",
            constants={
                "NUM_HEADS": 12,
                "ENTRIES_REACH": 511,
                "NUM_ENTRIES": 512,
                "SIGN": sign,
                "SUBSET": False,
                "WHOLE": False,
                "BLOCK_ROWS": 128 if sign > 0 else 64,
                "BLOCK_NUMBERS": grad_positions.BLOCK_NUMBERS,
            },
            num_warps=grad_positions.NUM_WARPS,
        )
        for of, sign in (("queries", 1), ("keys", -1))
    ]


def _attention_call(head_dim: int, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return a call with these terms, and where its rows lie."""
    import torch
    from encoder_engine.kernels.attention.blocks import Blocks
    from encoder_engine.kernels.attention.differentiable import Call

    heads = torch.empty(0, 768 // head_dim, head_dim, dtype=torch.bfloat16)
    absent = [None] * 6
    call = Call(heads, heads, heads, *absent, [], 0.125, 0.0, None, False, [0, 0], True)
    call = call._replace(**{name: x for name, x in given.items() if name in Call._fields})
    blocks = Blocks._make([heads] * len(Blocks._fields))
    blocks = blocks._replace(**{k: x for k, x in given.items() if k in Blocks._fields})
    # As a step calls them: the heads of one projection, or some rows of the queries.
    return call._replace(joined=len(blocks.places) == 0), blocks
