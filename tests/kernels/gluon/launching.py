"""Launches the simulated kernels as ``attention.gluon.launch`` launches the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tests.kernels.gluon.language import (
    KINDS,
    Descriptor,
    Language,
    Memory,
    Pointer,
    compile_functions,
    functions_of,
)
from tests.kernels.gluon.machine import Machine

if TYPE_CHECKING:
    import ast

    from encoder_engine.kernels.attention.config import GluonBackwardLaunch, GluonLaunch
    from torch import Tensor

MODULES = ("attention/gluon/primitives", "attention/gluon/forward")
BACKWARD_MODULES = ("attention/gluon/primitives", "attention/gluon/backward")
FORWARD, BACKWARD = functions_of(*MODULES), functions_of(*BACKWARD_MODULES)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Packed rows, query [T, H, D], key and value [T, K, D], and the sequences among them."""

    query: Tensor
    key: Tensor
    value: Tensor
    cu_seqlens: list[int]
    scale: float

    def tiles(self, block_rows: int) -> list[tuple[int, int]]:
        """Cut sequences into blocks of rows, the longest first; one more, of none, is last."""
        lengths = np.diff(self.cu_seqlens).tolist()
        order = sorted(range(len(lengths)), key=lambda sequence: -lengths[sequence])
        cut = [(i, block) for i in order for block in range(-(-lengths[i] // block_rows))]
        return [*cut, (order[-1], 0)] if lengths[order[-1]] == 0 else cut


def simulate(
    inputs: Inputs,
    launch: GluonLaunch,
    *,
    num_programs: int,
    seed: int,
    functions: dict[str, ast.FunctionDef] = FORWARD,
) -> tuple[Tensor, Tensor]:
    """Return the output [T, H, D] and the log2-sum-exp2 [H, T] in float32, NaN where unwritten."""
    query, key, value = inputs.query, inputs.key, inputs.value
    num_rows, num_heads, head_dim = query.shape
    kind = KINDS[str(query.dtype).removeprefix("torch.")]
    tiles = inputs.tiles(launch.block_rows)
    output = Memory(np.full((num_rows, num_heads, head_dim), np.nan, np.float32), writable=True)
    lse = Memory(np.full((num_heads, num_rows), np.nan, np.float32), writable=True)
    arguments: dict[str, Any] = {
        "query_rows": _describe(query, 64, kind),
        "key_rows": _describe(key, launch.block_keys, kind),
        "value_rows": _describe(value, launch.block_keys, kind),
        "output_pointer": Pointer(output),
        "lse_pointer": Pointer(lse),
        "cu_seqlens_pointer": Pointer(Memory(np.array(inputs.cu_seqlens, np.int32))),
        "tiles_pointer": Pointer(Memory(np.array(tiles, np.int32))),
        "num_tiles": len(tiles),
        "num_rows": num_rows,
        "factor": inputs.scale * log2(np.e),
        "NUM_HEADS": num_heads,
        "GROUP": num_heads // key.shape[1],
        "HEAD_DIM": head_dim,
        **launch.constants(),
    }
    for program in range(num_programs):
        machine = Machine(seed * num_programs + program)
        names = compile_functions(functions, Language(machine, program, num_programs))
        names["_attention_forward_gluon_kernel"](**arguments)
    shape = (num_rows, num_heads, head_dim)
    return (
        torch.from_numpy(output.array).view(shape),
        torch.from_numpy(lse.array).view(num_heads, num_rows),
    )


def simulate_backward(
    inputs: Inputs,
    given: dict[str, Tensor],
    launch: GluonBackwardLaunch,
    *,
    seed: int,
    joined: bool = False,
    functions: dict[str, ast.FunctionDef] = BACKWARD,
) -> dict[str, Tensor]:
    """Return the gradients of query, key and value in float32, perhaps heads of one tensor.

    ``given``: the gradient of the output, and in float32 [H, T] lse, of powers of two, and delta.
    """
    query, key = inputs.query, inputs.key
    num_rows, num_heads, head_dim = query.shape
    kind = KINDS[str(query.dtype).removeprefix("torch.")]
    heads = {"query": num_heads, "key": key.shape[1], "value": key.shape[1]}
    # The places of each one's heads in a row of its tensor.
    ends = np.cumsum([0, *heads.values()]) if joined else np.zeros(len(heads), np.int64)
    width = (sum(heads.values()),) if joined else tuple(heads.values())
    tensors = [
        Memory(np.full((num_rows, number, head_dim), np.nan, np.float32), writable=True)
        for number in width
    ]
    pointers = {
        f"grad_{name}_pointer": Pointer(tensors[0 if joined else place], ends[place] * head_dim)
        for place, name in enumerate(heads)
    }
    sums = Memory(np.full(query.shape, np.nan, np.float32), scratch=True)
    sequences = inputs.tiles(2**30)
    arguments: dict[str, Any] = {
        "query_rows": _describe(query, 64, kind),
        "grad_rows": _describe(given["grad"], 64, kind),
        "key_rows": _describe(key, 128, kind),
        "value_rows": _describe(inputs.value, 128, kind),
        "lse_pointer": Pointer(Memory(given["lse"].numpy())),
        "delta_pointer": Pointer(Memory(given["delta"].numpy())),
        "sum_pointer": None if launch.sum_blocks else Pointer(sums),
        **pointers,
        "cu_seqlens_pointer": Pointer(Memory(np.array(inputs.cu_seqlens, np.int32))),
        "tiles_pointer": Pointer(Memory(np.array(sequences, np.int32))),
        "num_rows": num_rows,
        "factor": inputs.scale * log2(np.e),
        "scale": inputs.scale,
        "NUM_HEADS": num_heads,
        "GROUP": num_heads // key.shape[1],
        "HEAD_DIM": head_dim,
        "JOINED": joined,
        **launch.constants(),
    }
    num_programs = len(sequences) * key.shape[1]
    for program in range(num_programs):
        machine = Machine(seed * num_programs + program)
        names = compile_functions(functions, Language(machine, program, num_programs))
        names["_attention_backward_gluon_kernel"](**arguments)
    found = [torch.from_numpy(x.array).view(num_rows, -1, head_dim) for x in tensors]
    parts = torch.split(found[0], list(heads.values()), 1) if joined else found
    return dict(zip(heads, parts, strict=True))


def _describe(x: Tensor, block_rows: int, kind: Any) -> Descriptor:
    return Descriptor(x.flatten(1).float().numpy(), (block_rows, x.shape[2]), kind)
