"""``encoder-engine compile``: writes a model in a layout that is memory-mapped at loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import binary_size, print_facts

if TYPE_CHECKING:
    from pathlib import Path

HEADS = (
    *("sequence-classification", "masked-lm", "token-classification", "question-answering"),
    "multiple-choice",
)


@click.command("compile")
@option.model
@option.output(
    "The folder to write, which takes the model's place.", required=True, type=option.PATH
)
@option.choice(
    "--dtype", ["auto", "float32", "bfloat16"], "Of the weights that are not int8.", "auto"
)
@click.option("--int8", is_flag=True, help="Round the blocks' dense layers to 8-bit integers.")
@option.choice("--head", HEADS, "The head to compile too, as rerankers need it.")
@click.option("--overwrite", is_flag=True, help="Replace a folder that holds a compiled model.")
def compile_(
    model: str, output: Path, dtype: str, int8: bool, head: str | None, overwrite: bool
) -> None:
    """Compile a model to a folder that a CPU loads faster.

    The folder can replace the model directory for inference on a CPU. The weights are laid out once
    for the CPU's kernels. A process maps them: it starts faster, and processes on one machine share
    the memory.
    """
    from encoder_engine.opening.compiling import compile_directory

    encoder = compile_directory(
        model,
        output,
        dtype=dtype,
        quantization="int8" if int8 else None,
        head=head,  # type: ignore[arg-type]
        overwrite=overwrite,
    )
    size = sum(path.stat().st_size for path in output.rglob("compiled.safetensors"))
    print_facts("Done", {"encoder": encoder, "weights": binary_size(size), "folder": output})
