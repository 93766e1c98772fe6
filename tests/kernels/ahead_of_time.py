"""Compiles every kernel for GPUs that are not here, and reports registers, spills and memory.

``python -m tests.kernels.ahead_of_time`` prints the table; with ``--write`` it becomes the
committed one, which tests/kernels/test_ahead_of_time.py holds the kernels to. It is that of one
version of Triton: another shares registers out differently.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.kernels.attention_variants import attention_variants
from tests.kernels.variant import Variant

TABLE = ROOT / "tests/golden/kernel_resources.json"
TARGETS = (80, 90)
# Nobody debugs what is compiled here: lines, which change some instructions, are left out.
COMPILING = {
    "TRITON_INTERPRET": "0",
    "TRITON_DEFAULT_FP_FUSION": "1",
    "TRITON_DISABLE_LINE_INFO": "1",
}
POINTERS = {
    "mean_pointer": "*fp32",
    "rstd_pointer": "*fp32",
    "lse_pointer": "*fp32",
    "delta_pointer": "*fp32",
    "slopes_pointer": "*fp32",
    "grad_weight_pointer": "*fp32",
    "grad_bias_pointer": "*fp32",
    "label_logit_pointer": "*fp32",
    "logit_sum_pointer": "*fp32",
    "best_pointer": "*fp32",
    "seed_pointer": "*i64",
    "labels_pointer": "*i64",
    "predictions_pointer": "*i64",
    "cu_seqlens_pointer": "*i32",
    "tiles_pointer": "*i32",
    "cu_queries_pointer": "*i32",
    "query_places_pointer": "*i32",
    "cu_globals_pointer": "*i32",
    "globals_pointer": "*i32",
    "cu_listed_pointer": "*i32",
    "listed_pointer": "*i32",
    "bias_sums_pointer": "*fp32",
    "table_pointer": "*fp32",
    "positions_pointer": "*i64",
    "tokens_pointer": "*i64",
    "places_pointer": "*i64",
    "segments_pointer": "*i64",
    "ids_pointer": "*i64",
    "order_pointer": "*i64",
    "entries_pointer": "*i32",
    "starts_pointer": "*i32",
    "distances_pointer": "*i32",
    "entering_pointer": "*fp32",
    "leaving_pointer": "*fp32",
    "partial_pointer": "*fp32",
    "partial_ties_pointer": "*fp32",
    "pooled_pointer": "*fp32",
    "ties_pointer": "*fp32",
    "share_pointer": "*fp32",
}
# A load of two bytes or one: a kernel bound by memory reads 16 at a time.
NARROW_LOAD = re.compile(r"ld\.global[.\w]*\.[bus](?:8|16)\b")
FLOATS = ("epsilon", "dropout", "scale", "label_smoothing", "z_loss")


def variants(target: int = 90) -> list[Variant]:
    """List the kernels at the shapes they are tuned for, launched as a call launches them."""
    return [
        *_layer_norm(),
        *_activation(),
        *_embedding(),
        *attention_variants(target),
        *_masked_projection(),
        *_rotary(),
        *_pooling(),
    ]


def _layer_norm() -> list[Variant]:
    from encoder_engine.kernels.common.launch import row_tile
    from encoder_engine.kernels.layer_norm.backward import num_stages

    found = []
    for width, centred in product((384, 768, 1024, 4096), (True, False)):
        tile = row_tile(width)
        shared = {"WIDTH": width, "BLOCK_WIDTH": tile.width, "BLOCK_ROWS": tile.rows}
        shared |= {"HAS_DROPOUT": True, "HAS_BIAS": centred, "CENTRED": centred}
        for half, more in (
            ("forward", {"HAS_RESIDUAL": True, "KEEPS_SUM": True}),
            ("backward", {"HAS_JOINING": True, "NUM_STAGES": num_stages(tile, 2)}),
        ):
            found.append(
                Variant(
                    module=f"layer_norm.{half}",
                    kernel=f"_layer_norm_{half}_kernel",
                    name=f"{'layer_norm' if centred else 'rms_norm'} {half} {width}",
                    constants=shared | more,
                    num_warps=tile.num_warps,
                )
            )
    return found


def _activation() -> list[Variant]:
    from encoder_engine.kernels.activation.backward import NUM_STAGES, backward_block_shape
    from encoder_engine.kernels.activation.forward import NUM_WARPS, block_shape

    found = []
    plain = product((1536, 3072, 4096), ("gelu", "gelu_tanh"), (False,))
    gates = product((768, 1152, 2624), ("gelu", "gelu_tanh", "silu"), (True,))
    for width, activation, gated in (*plain, *gates):
        shapes = {"forward": block_shape(width)}
        shapes["backward"] = backward_block_shape(width, gated=gated)
        for half, (rows, columns) in shapes.items():
            constants = {"WIDTH": width, "BLOCK_ROWS": rows, "BLOCK_COLUMNS": columns}
            constants |= {"HAS_BIAS": True, "GATED": gated, "ACTIVATION": activation}
            if half == "backward":
                constants["NUM_STAGES"] = NUM_STAGES
            found.append(
                Variant(
                    module=f"activation.{half}",
                    kernel=f"_activation_{half}_kernel",
                    name=f"{'gated' if gated else 'bias'} {activation} {half} {width}",
                    constants=constants,
                    num_warps=NUM_WARPS,
                )
            )
    return found


def _embedding() -> list[Variant]:
    from encoder_engine.kernels.common.launch import row_tile
    from encoder_engine.kernels.embedding import table_gradient as gradient

    found = []
    names = ("HAS_POSITIONS", "HAS_SEGMENTS", "SEGMENTS_GIVEN", "HAS_DROPOUT")
    both = dict.fromkeys(names, True)
    flags = {"forward": both | {"HAS_BIAS": True}, "backward": both}
    chunks = {"CHUNK": gradient.CHUNK, "BLOCK_COLUMNS": gradient.BLOCK_COLUMNS}
    for width in (384, 768, 1024, 4096):
        for half, most in (("forward", 8192), ("backward", 4096)):
            tile = row_tile(width, most_elements=most)
            shape = {"WIDTH": width, "BLOCK_WIDTH": tile.width, "BLOCK_ROWS": tile.rows}
            found.append(
                Variant(
                    module=f"embedding.{half}",
                    kernel=f"_embedding_{half}_kernel",
                    name=f"embedding {half} {width}",
                    constants=shape | flags[half],
                    num_warps=tile.num_warps,
                )
            )
        for part, more in (("chunk", {}), ("joined", {"BLOCK_CHUNKS": gradient.BLOCK_CHUNKS})):
            found.append(
                Variant(
                    module="embedding.table_gradient",
                    kernel=f"_{part}_sums_kernel",
                    name=f"embedding {part} sums {width}",
                    constants={"WIDTH": width} | chunks | more,
                    num_warps=gradient.NUM_WARPS,
                )
            )
    return found


def _masked_projection() -> list[Variant]:
    from encoder_engine.kernels.common.launch import row_tile
    from encoder_engine.kernels.masked_projection import config

    asked: dict[str, Any] = {"HAS_BIAS": True, "SMOOTHED": False, "PREDICT": True}
    found = [
        Variant(
            module="masked_projection.forward",
            kernel="_stored_logits_kernel",
            name="masked_projection stored",
            constants={"BLOCK": config.BLOCK_LOGITS, "KEEP": True, **asked},
            num_warps=config.LOGITS_WARPS,
        )
    ]
    for width in (384, 768, 1024):
        tile = row_tile(width)
        shape = {"WIDTH": width, "BLOCK_WIDTH": tile.width, "BLOCK_ROWS": tile.rows}
        found.append(
            Variant(
                module="masked_projection.label_logits",
                kernel="_label_logits_kernel",
                name=f"masked_projection label logits {width}",
                constants=shape | {"HAS_BIAS": True},
                num_warps=tile.num_warps,
            )
        )
    kernels: tuple[tuple[str, str, config.Launch, dict[str, Any]], ...] = (
        ("forward", "_tiled_statistics_kernel", config.statistics_launch(itemsize=2), asked),
        ("backward", "_tiled_gradient_kernel", config.gradient_launch(itemsize=2), {}),
    )
    for half, kernel, launch, more in kernels:
        for width in (384, 768, 1024):
            constants = {
                "WIDTH": width,
                "BLOCK_ROWS": launch.block_rows,
                "BLOCK_COLUMNS": launch.block_columns,
                "BLOCK_WIDTH": launch.block_width,
                "HAS_BIAS": True,
                "PRECISION": "ieee",
            }
            found.append(
                Variant(
                    module=f"masked_projection.{half}",
                    kernel=kernel,
                    name=f"masked_projection tiled {half} {width}",
                    constants=constants | more,
                    num_warps=launch.num_warps,
                    num_stages=launch.num_stages,
                )
            )
    return found


def _rotary() -> list[Variant]:
    from encoder_engine.kernels.rotary.forward import NUM_WARPS, block_shape

    found = []
    for head_dim in (32, 64, 128):
        rows, half = block_shape(head_dim // 2)
        constants = {"NUM_HEADS": 12, "HALF": head_dim // 2}
        constants |= {"BLOCK_HALF": half, "BLOCK_ROWS": rows, "INVERSE": True}
        found.append(
            Variant(
                module="rotary.forward",
                kernel="_rotary_kernel",
                name=f"rotary d{head_dim}",
                constants=constants,
                num_warps=NUM_WARPS,
            )
        )
    return found


def _pooling() -> list[Variant]:
    from encoder_engine.kernels.common.launch import row_tile
    from encoder_engine.kernels.pooling import forward

    found = []
    chunk = {"CHUNK": forward.CHUNK}
    block = {"BLOCK_ROWS": forward.BLOCK_ROWS, "BLOCK_COLUMNS": forward.BLOCK_COLUMNS}
    for width, mode in product((384, 768, 1024, 4096), ("mean", "max")):
        join, share = row_tile(width, most_elements=16384), row_tile(width, most_elements=4096)
        row = {"BLOCK_WIDTH": join.width, "NORMALIZE": True}
        kernels: tuple[tuple[str, str, dict[str, Any], int], ...] = (
            ("forward", "chunks", chunk | block, forward.NUM_WARPS),
            ("forward", "join", chunk | row | {"BLOCK_CHUNKS": join.rows}, join.num_warps),
            ("backward", "shares", row, share.num_warps),
            ("backward", "spread", chunk | block, forward.NUM_WARPS),
        )
        for half, part, constants, num_warps in kernels:
            found.append(
                Variant(
                    module=f"pooling.{half}",
                    kernel=f"_pooling_{part}_kernel",
                    name=f"pooling {part} {width} {mode}",
                    constants={"WIDTH": width, "MODE": mode} | constants,
                    num_warps=num_warps,
                )
            )
    return found


def build(variant: Variant, target: int, **more: int) -> Any:
    """Compile for a compute capability (90 is sm_90); no GPU is needed."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(
        importlib.import_module(f"encoder_engine.kernels.{variant.module}"), variant.kernel
    )
    signature = {name: _type(name, variant) for name in kernel.arg_names}
    # What the launcher sees at run time: aligned pointers, strides that 16 divides.
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.endswith("_stride")
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=variant.constants, attrs=aligned)
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages}
    if variant.max_registers is not None:
        options["maxnreg"] = variant.max_registers
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options | more)


def compile_variant(variant: Variant, target: int) -> dict[str, int]:
    """Compile a variant and count what it takes."""
    compiled = build(variant, target)
    used = resource_usage(compiled.asm["cubin"])
    ptx = compiled.asm["ptx"]
    return {
        "registers": used["REG"],
        "spilled_bytes": used["STACK"],
        "shared_bytes": int(compiled.metadata.shared),
        "wgmma": ptx.count("wgmma.mma_async"),
        "mma_sync": ptx.count("mma.sync"),
        "narrow_loads": len(NARROW_LOAD.findall(ptx)),
    }


def _type(name: str, variant: Variant) -> str:
    if name in variant.constants:
        return "constexpr"
    if name in variant.descriptors:
        return variant.descriptors[name]
    if name.endswith("_pointer"):
        return POINTERS.get(name, variant.element)
    return "fp32" if name in FLOATS else "i32"


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Return registers (REG) and bytes of the stack (STACK) of a thread."""
    import triton

    beside = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool = str(beside) if beside.exists() else shutil.which("cuobjdump")
    assert tool is not None, "cuobjdump is neither with triton nor on the path"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        ran = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    return {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", ran.stdout)}


def main() -> None:
    """Print the table as JSON, and keep it where told to."""
    os.environ.update(COMPILING)
    import triton

    kernels: dict[str, dict[str, dict[str, int]]] = {}
    for target in TARGETS:
        for variant in variants(target):
            kernels.setdefault(variant.name, {})[f"sm_{target}"] = compile_variant(variant, target)
    text = json.dumps({"triton": triton.__version__, "kernels": kernels}, indent=1) + "\n"
    if "--write" in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
