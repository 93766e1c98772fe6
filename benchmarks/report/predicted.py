"""Section on predictions from disassembly for a GPU on which nothing has been measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report.page import Section, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.predicted import Prediction

TITLE = "Predicted for a Hopper GPU, not measured"
HEADER = ("kernel", "instructions", "registers", "programs", "serial", "overlapped")
# Of the variants, the plain ones and those of training with dropout.
SHOWN = (
    *(f"attention {half} d{size}" for size in (64, 128) for half in ("forward", "grad_query")),
    *(f"attention grad_key_value d{size}" for size in (64, 128)),
)


def predicted_section(predictions: Sequence[Prediction]) -> Section:
    """Show an upper bound on the share of the tensor cores' peak that inner loops can reach."""
    chosen = {*SHOWN, *(f"{name} dropout" for name in SHOWN)}
    rows = [
        (
            p.kernel,
            str(p.instructions),
            str(p.registers),
            str(p.residents),
            f"{p.serial:.0%}",
            f"{p.overlapped:.0%}",
        )
        for p in predictions
        if p.kernel in chosen
    ]
    reading = (
        "Bounds from the disassembly of the kernels for sm_90, as a share of the tensor cores' "
        "peak. No kernel has been timed for this table."
    )
    words = (
        "Serial: products, everything else and barriers of one block follow each other. "
        "Overlapped: the busiest unit alone. Published plain Triton kernels reach 0.75 to 0.9 "
        "of the serial bound. Programs: how many share a multiprocessor. Instructions are "
        "those of one pass of the inner loop."
    )
    return Section(
        title=TITLE, reading=reading, blocks=[Text(words=words), Table(header=HEADER, rows=rows)]
    )
